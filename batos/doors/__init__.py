"""Doors: the daemon's HTTP server, and the interfaces of others, so that their clients reach it: OpenAI's, Ollama's and MCP.

server.py         the sockets on loopback; the stack behind them is loaded with the first connection
access.py         the token, before any route; what a browser asks for goes to the pages of the console
client_settings.py  settings of clients, to be pasted
app.py            the groups of routes: models.py, chats.py, responses.py, embeddings.py, mcp_route.py
routes.py         a group of routes: what it is given, how it is served
answers.py        from a request to a mission or a plain inference, and to its end
bodies.py         what a request may hold
turns.py          turns of a conversation: their keys, ids and briefs
turn_log.py       which mission answered which turn
missions.py       a turn as a mission: submitted, answered or found again, and followed
answer_text.py    the text of an answer, put together from a mission's events
forms.py          answers and errors, as OpenAI and Ollama have them; response_forms.py for the Responses interface
mcp_server.py     the MCP server, by the SDK, over HTTP and standard streams; its tools: mcp_tools.py and mcp_missions.py

A turn of a chat is a mission, and so is what an MCP client submits. The doors ask the dispatcher as any client does and have no rights of
their own.
"""
