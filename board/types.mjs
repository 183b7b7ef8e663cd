// Writes src/api/schema.ts: the types of the server's answers, from the committed description of the interface.
// Paths are left out, because the board builds its addresses by hand (src/api/client.ts).
import { readFile, writeFile } from 'node:fs/promises';
import openapi, { astToString } from 'openapi-typescript';

const source = new URL('../docs/src/openapi.json', import.meta.url);
const target = new URL('src/api/schema.ts', import.meta.url);
const { openapi: version, info, components } = JSON.parse(await readFile(source, 'utf8'));
const types = await openapi({ openapi: version, info, paths: {}, components }, { defaultNonNullable: false });
const head = '// Written by `npm run types` from docs/src/openapi.json. Do not edit.\n\n';
await writeFile(target, head + astToString(types));
