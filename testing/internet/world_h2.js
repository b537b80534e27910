// The HTTP/2 half of world.py: cleartext here, since TLS is world.py's, which also answers each request, over
// HTTP/1.1 with "x-http: 2" in its head. PORT; prints a line when it listens, ends when its stdin does.
'use strict';
const http = require('node:http');
const http2 = require('node:http2');

const server = http2.createServer((request, response) => {
  const headers = { 'x-http': '2' };
  for (const [name, value] of Object.entries(request.headers)) {
    if (!name.startsWith(':')) headers[name] = value;
  }
  headers.host = request.authority || headers.host;
  const inner = http.request(
    { host: '127.0.0.1', port: 80, method: request.method, path: request.url, headers, agent: false },
    (answer) => {
      const kept = { ...answer.headers };
      for (const name of ['connection', 'keep-alive', 'transfer-encoding']) delete kept[name];
      response.writeHead(answer.statusCode, kept);
      answer.pipe(response);
    });
  inner.on('error', () => response.stream.close(http2.constants.NGHTTP2_INTERNAL_ERROR));
  request.pipe(inner);
});
server.listen(Number(process.argv[2]), '127.0.0.1', () => console.log('ready'));
process.stdin.on('end', () => process.exit(0)).resume();
