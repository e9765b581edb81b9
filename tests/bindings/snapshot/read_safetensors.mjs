// SPDX-License-Identifier: BSD-2-Clause
// Reads the header of a file of safetensors by the package @huggingface/hub, which fetches it from
// a server of its own at the loopback address, and prints it.
//
// usage: node read_safetensors.mjs FILE
import { closeSync, openSync, readSync, statSync } from 'node:fs';
import { createServer } from 'node:http';
import { parseSafetensorsMetadata } from '@huggingface/hub';

const path = process.argv[2];
const size = statSync(path).size;

function piece(first, last) {
    const bytes = Buffer.alloc(last - first + 1);
    const file = openSync(path, 'r');
    readSync(file, bytes, 0, bytes.length, first);
    closeSync(file);
    return bytes;
}

const server = createServer((request, answer) => {
    if (!request.url.includes('/resolve/main/model.safetensors')) {
        answer.writeHead(404, { 'X-Error-Code': 'EntryNotFound' });
        answer.end();
        return;
    }
    const [, from, to] = /bytes=(\d+)-(\d*)/.exec(request.headers.range ?? 'bytes=0-');
    const first = Number(from);
    const last = Math.min(size - 1, to === '' ? size - 1 : Number(to));
    answer.writeHead(206, {
        'Content-Range': `bytes ${first}-${last}/${size}`,
        'Content-Length': last - first + 1,
        ETag: '"1"',
    });
    answer.end(piece(first, last));
});

server.listen(0, '127.0.0.1', async () => {
    const hubUrl = `http://127.0.0.1:${server.address().port}`;
    try {
        const found = await parseSafetensorsMetadata({
            repo: 'local/run',
            path: 'model.safetensors',
            hubUrl,
            computeParametersCount: true,
        });
        console.log(JSON.stringify(found));
    } catch (error) {
        console.error(`${error}`);
        process.exitCode = 1;
    }
    server.close();
    server.closeAllConnections();
});
