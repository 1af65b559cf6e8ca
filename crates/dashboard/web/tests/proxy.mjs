// A proxy in front of the dashboard that asks for a name and a password, as a web server does.

import http from "node:http";

/** Starts a proxy to `port` of loopback; `credentials` is `NAME:PASSWORD`. Returns its address and what ends it. */
export async function startProxy(port, credentials) {
  const expected = `Basic ${Buffer.from(credentials).toString("base64")}`;
  const server = http.createServer((request, answer) => {
    if (request.headers.authorization !== expected) {
      answer.writeHead(401, { "WWW-Authenticate": 'Basic realm="Tidegate"' }).end();
      return;
    }
    const { method, url, headers } = request;
    const passed = http.request({ host: "127.0.0.1", port, method, path: url, headers }, (from) => {
      answer.writeHead(from.statusCode, from.headers);
      from.pipe(answer);
    });
    passed.on("error", () => answer.destroy());
    answer.on("close", () => passed.destroy());
    request.pipe(passed);
  });
  await new Promise((done) => server.listen(0, "127.0.0.1", done));
  const end = () => {
    server.close();
    server.closeAllConnections();
  };
  return { url: `http://127.0.0.1:${server.address().port}/`, end };
}
