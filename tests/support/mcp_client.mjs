// A client of the TypeScript SDK of MCP, as a program: `mcp_client.mjs http URL TOKEN` or `mcp_client.mjs stdio COMMAND ARGUMENT…`.
// Prints JSON: what it heard of the tools, of a mission, and of a message whose tool asks its user for leave.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { ElicitRequestSchema } from "@modelcontextprotocol/sdk/types.js";

const [way, place, ...more] = process.argv.slice(2);
const transport = way === "http"
  ? new StreamableHTTPClientTransport(new URL(place), { requestInit: { headers: { Authorization: `Bearer ${more[0]}` } } })
  : new StdioClientTransport({ command: place, args: more, env: { ...process.env } });
const client = new Client({ name: "node", version: "1" }, { capabilities: { elicitation: {} } });
const told = { asked: [] };
client.setRequestHandler(ElicitRequestSchema, async (request) => {
  told.asked.push(request.params.message);
  return { action: "accept", content: { answer: "once" } };
});
await client.connect(transport);
told.server = client.getServerVersion();
told.tools = (await client.listTools()).tools.map((tool) => [tool.name, tool.annotations]);
const brief = { name: "submit", arguments: { brief: `Which tea at night? (node, ${way})`, key: `node ${way}` } };
const first = await client.callTool(brief);
told.answer = first.content[0].text;
told.same = (await client.callTool(brief)).structuredContent.id === first.structuredContent.id;
const message = { target: "tools.notes", message: "write_", kwargs: { path: `node-${way}.txt`, text: "rain" } };
told.sent = (await client.callTool({ name: "send", arguments: message })).structuredContent.state;
told.refused = (await client.callTool({ name: "send", arguments: { target: "robin", message: "add_" } })).isError;
await client.close();
console.log(JSON.stringify(told));
