// The HTTP/2 half of world.py: cleartext here, since TLS is world.py's. PORT; prints a line when it listens,
// ends when its stdin does.
'use strict';
const http2 = require('node:http2');

const server = http2.createServer((request, response) => {
  let size = 0;
  request.on('data', (chunk) => { size += chunk.length; });
  request.on('end', () => {
    response.setHeader('content-type', 'text/plain');
    response.end(`reached by HTTP/2 ${request.method} ${request.url}\nbody: ${size}\n` +
                 `host: ${request.authority || request.headers.host}\n`);
  });
});
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
process.stdin.on('end', () => process.exit(0)).resume();
