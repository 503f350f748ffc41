// Send a mission to a BAT OS daemon and print what happens until its result: ZeroMQ and JSON, nothing else.
//
//     cd examples/node && npm install
//     node send_mission.mjs "Plan a birthday party for a cat lover on a budget" [ENDPOINT]
//
// With CURVE (docs/wire.md), set BATOS_SERVER_KEY, BATOS_PUBLIC_KEY and BATOS_SECRET_KEY.

import { randomUUID } from "node:crypto";
import { existsSync, readFileSync } from "node:fs";
import { homedir } from "node:os";
import process from "node:process";
import { Dealer } from "zeromq";

const { BATOS_WIRE_LISTEN, BATOS_SERVER_KEY, BATOS_PUBLIC_KEY, BATOS_SECRET_KEY } = process.env;
// Where a daemon of this user listens: as the environment or the first batos.toml says, else at its local socket.
const home = `${homedir()}/.local/share/batos`;
const file = ["batos.toml", `${process.env.BATOS_DATA ?? home}/batos.toml`].find(existsSync);
const wire = file && readFileSync(file, "utf8").split(/^\[/m).find((section) => section.startsWith("wire]"));
const listed = wire?.match(/^\s*listen\s*=\s*\[?\s*["']([^"',]+)/m)?.[1];
const own = (BATOS_WIRE_LISTEN?.split(/[,\s]+/).find(Boolean) ?? listed ?? `ipc://${home}/wire.sock`).replace(/\/\/(\*|0\.0\.0\.0):/, "//127.0.0.1:");
const [brief = "Plan a birthday party for a cat lover on a budget", endpoint = own] = process.argv.slice(2);

const socket = new Dealer({ linger: 0, receiveTimeout: 5_000 }); // milliseconds: a daemon that is there accepts at once
if (BATOS_SERVER_KEY) {
  socket.curveServerKey = BATOS_SERVER_KEY;
  socket.curvePublicKey = BATOS_PUBLIC_KEY;
  socket.curveSecretKey = BATOS_SECRET_KEY;
}
socket.connect(endpoint);
await socket.send(JSON.stringify({ op: "submit", id: randomUUID(), brief, watch: true }));

let ended;
try {
  for await (const [frame] of socket) {
    const reply = JSON.parse(frame.toString());
    console.log(JSON.stringify(reply));
    socket.receiveTimeout = 600_000; // to think takes longer
    if (reply.type === "result" || reply.type === "error") {
      ended = reply;
      break;
    }
  }
} catch (error) {
  if (error.code !== "EAGAIN") throw error;
  console.error(`no daemon answers at ${endpoint}: start one with \`batos run\`, or name another ENDPOINT`);
}
socket.close();
process.exitCode = ended?.state === "COMPLETE" ? 0 : 1;
