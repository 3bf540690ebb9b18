// Reads [{module, kind, manifest}, ...] from standard input and prints what each kind's own validator says, "" for nothing:
// ranges, patterns and quantities, which no type tells.
import { readFileSync } from "node:fs";

const said = [];
for (const { module, kind, manifest } of JSON.parse(readFileSync(0, "utf-8"))) {
  const Kind = (await import(module))[kind];
  try {
    new Kind(manifest).validate();
    said.push("");
  } catch (wrong) {
    said.push(String(wrong.message));
  }
}
console.log(JSON.stringify(said));
