// A client of NBD that reads and writes at a pace, so that the pages have something to show.

import net from "node:net";

const OPTION = 0x49484156454f5054n; // "IHAVEOPT"
const GO = 7;
const ACK = 1;
const REQUEST = 0x25609513;

/** Reads exact numbers of bytes from a socket. */
class Reader {
  constructor(socket) {
    this.chunks = Buffer.alloc(0);
    this.waiting = null;
    socket.on("data", (data) => {
      this.chunks = Buffer.concat([this.chunks, data]);
      this.serve();
    });
    socket.on("close", () => {
      this.isClosed = true;
      this.waiting?.fail(new Error("the connection has ended"));
    });
  }

  serve() {
    if (!this.waiting || this.chunks.length < this.waiting.length) return;
    const { length, done } = this.waiting;
    this.waiting = null;
    const bytes = this.chunks.subarray(0, length);
    this.chunks = this.chunks.subarray(length);
    done(bytes);
  }

  take(length) {
    return new Promise((done, fail) => {
      if (this.isClosed) return fail(new Error("the connection has ended"));
      this.waiting = { length, done, fail };
      this.serve();
    });
  }
}

async function open(path, name) {
  const socket = net.connect(path);
  socket.on("error", () => {});
  const reader = new Reader(socket);
  await reader.take(18);
  const option = Buffer.alloc(4 + 16 + 4 + name.length + 2);
  option.writeUInt32BE(3, 0); // fixed newstyle, no zeroes
  option.writeBigUInt64BE(OPTION, 4);
  option.writeUInt32BE(GO, 12);
  option.writeUInt32BE(4 + name.length + 2, 16);
  option.writeUInt32BE(name.length, 20);
  option.write(name, 24);
  socket.write(option);
  for (;;) {
    const head = await reader.take(20);
    const kind = head.readUInt32BE(12);
    await reader.take(head.readUInt32BE(16));
    if (kind === ACK) return { socket, reader };
    if (kind >= 0x80000000) throw new Error(`export ${name} was refused`);
  }
}

/** Keeps one request of `size` bytes after the other in flight, with pauses of `pauseMs`. */
async function requests({ socket, reader }, { size, pauseMs, isWrite }, state) {
  const payload = isWrite ? Buffer.alloc(size, 7) : Buffer.alloc(0);
  for (let n = 0; !state.isOver; n++) {
    const head = Buffer.alloc(28);
    head.writeUInt32BE(REQUEST, 0);
    head.writeUInt16BE(isWrite ? 1 : 0, 6);
    head.writeBigUInt64BE(BigInt(n), 8);
    // Addresses far from each other, inside the smallest disk of the tests.
    head.writeBigUInt64BE(BigInt(((n * 7919) % 200) * 262144), 16);
    head.writeUInt32BE(size, 24);
    socket.write(Buffer.concat([head, payload]));
    const reply = await reader.take(16 + (isWrite ? 0 : size));
    if (reply.readUInt32BE(4) !== 0) throw new Error(`error ${reply.readUInt32BE(4)}`);
    await new Promise((done) => setTimeout(done, pauseMs));
  }
  socket.destroy();
}

/** Starts `connections` clients of an export; the returned function ends them. */
export async function load(path, name, { connections = 2, ...work }) {
  const state = { isOver: false };
  const all = [];
  for (let i = 0; i < connections; i++) all.push(await open(path, name));
  const done = all.map((connection) => requests(connection, work, state).catch(() => {}));
  return async () => {
    state.isOver = true;
    for (const { socket } of all) socket.destroy();
    await Promise.all(done);
  };
}
