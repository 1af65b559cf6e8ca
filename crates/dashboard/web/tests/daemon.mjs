// A daemon with emulated devices, three VMs and a dashboard, and requests to its control socket.

import { spawn } from "node:child_process";
import { mkdtempSync, readFileSync, rmSync, writeFileSync, openSync } from "node:fs";
import http from "node:http";
import net from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";

const VM = (name, device, objective) => `
[[vm]]
name = "${name}"
device = "${device}"
${objective ? `[vm.objective]\n${objective}` : ""}
[[vm.disk]]
size = "64 MiB"
`;

const CONFIG = (port, vms) => `
[control]
socket = "control.sock"
[store]
path = "tidegate.redb"
[history]
directory = "history"
[[dashboard]]
tcp = "127.0.0.1:${port}"
[[listen]]
unix = "nbd.sock"
[[device]]
name = "nvme0"
kind = "emulated"
model = "nvme-1tb"
[[device]]
name = "hdd0"
kind = "emulated"
model = "hdd-7200-1tb"
${vms}
`;

const THREE = [
  VM("db", "nvme0", 'reservation = "50 IOPS @ 16 KiB"\nlatency = "200 ms"'),
  VM("web", "nvme0", ""),
  VM("backup", "hdd0", '[vm.objective.limit]\ntotal = "20 MB/s"'),
].join("");

/** So many VMs with reservations. */
function many(count) {
  const names = Array.from({ length: count }, (_, i) => `vm${i}`);
  return names.map((name) => VM(name, "nvme0", 'reservation = "2 IOPS"')).join("");
}

/** A free port of loopback. */
function freePort() {
  return new Promise((done) => {
    const server = net.createServer().listen(0, "127.0.0.1", () => {
      const { port } = server.address();
      server.close(() => done(port));
    });
  });
}

/** Calls `check` until it returns a value that is true, for a minute at most. */
export async function until(what, check) {
  const end = Date.now() + 60_000;
  for (;;) {
    const value = await check();
    if (value) return value;
    if (Date.now() > end) throw new Error(`not within a minute: ${what}`);
    await new Promise((done) => setTimeout(done, 50));
  }
}

export class Daemon {
  /** Starts a daemon with three VMs, or with `vms` of one kind. */
  static async start(binary, { vms } = {}) {
    const daemon = new Daemon();
    daemon.binary = binary;
    daemon.dir = mkdtempSync(join(tmpdir(), "tidegate-dashboard-"));
    daemon.port = await freePort();
    daemon.url = `http://127.0.0.1:${daemon.port}/`;
    writeFileSync(join(daemon.dir, "tidegate.toml"), CONFIG(daemon.port, vms ? many(vms) : THREE));
    await daemon.run();
    return daemon;
  }

  get nbd() {
    return join(this.dir, "nbd.sock");
  }

  async run() {
    const log = openSync(join(this.dir, "log"), "a");
    this.process = spawn(this.binary, ["serve", "tidegate.toml"], {
      cwd: this.dir,
      stdio: ["ignore", log, log],
    });
    this.ended = new Promise((done) => this.process.on("exit", done));
    await until("the daemon listens", async () => {
      if (this.process.exitCode !== null) throw new Error(this.log());
      return (await this.ask("GET", "/v1/vms").catch(() => null))?.status === 200;
    });
  }

  log() {
    return readFileSync(join(this.dir, "log"), "utf8");
  }

  async stop() {
    this.process.kill("SIGTERM");
    await this.ended;
  }

  async remove() {
    await this.stop();
    rmSync(this.dir, { recursive: true });
  }

  /** Sends a request to the control socket, as an administrator. */
  ask(method, path, body) {
    return new Promise((done, fail) => {
      const options = { socketPath: join(this.dir, "control.sock"), method, path };
      const request = http.request(options, (answer) => {
        let text = "";
        answer.on("data", (data) => (text += data));
        answer.on("end", () => done({ status: answer.statusCode, body: text && JSON.parse(text) }));
      });
      request.on("error", fail);
      request.end(body === undefined ? undefined : JSON.stringify(body));
    });
  }

  async token(name, role) {
    const { status, body } = await this.ask("POST", "/v1/tokens", { name, role });
    if (status !== 201) throw new Error(JSON.stringify(body));
    return body.secret;
  }
}
