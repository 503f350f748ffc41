"""The web console: the image, its missions, memory and models in a browser on this machine. The daemon serves it on request.

It has no rights of its own: `api_client` sends its questions to the dispatcher as requests of the wire. `access` and `login` decide who may
ask, `pages` and its neighbours draw the pages, `live_events` and `server` update and serve them.
"""
