// Real chat clients of Node: `node chat_clients.mjs ADDRESS TOKEN`. Prints JSON. Its packages lie beside it: tools/chat_clients.sh
import OpenAI from "openai";
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { generateText, streamText } from "ai";

const [address, token] = process.argv.slice(2);
const client = new OpenAI({ baseURL: `${address}/v1`, apiKey: token, timeout: 60_000 });
const messages = [{ role: "user", content: "Which tea shall I drink in the harbour?" }];
const told = { models: [], streamed: "" };
for await (const one of await client.models.list()) told.models.push(one.id);
told.whole = (await client.chat.completions.create({ model: "batos", messages })).choices[0].message.content;
const asked = { model: "batos", messages, stream: true, stream_options: { include_usage: true } };
for await (const chunk of await client.chat.completions.create(asked)) {
  told.streamed += chunk.choices[0]?.delta?.content ?? "";
  told.tokens = chunk.usage?.total_tokens ?? told.tokens;
}
try {
  await client.chat.completions.create({ model: "gpt-9", messages });
} catch (error) {
  told.missing = [error.status, error.code];
}
const model = createOpenAICompatible({ name: "batos", baseURL: `${address}/v1`, apiKey: token })("batos");
told.generated = (await generateText({ model, prompt: "Which tea shall I drink on the pier?" })).text;
const stream = streamText({ model, prompt: "Which tea shall I drink on deck?" });
told.texts = "";
told.thought = "";
for await (const part of stream.fullStream) {
  if (part.type === "text-delta") told.texts += part.text;
  if (part.type === "reasoning-delta") told.thought += part.text;
  if (part.type === "error") throw part.error;
}
console.log(JSON.stringify(told));
