// The proxies that the gateway's bench compares, each set up as its manual says for this work: least connections over two
// workers, connections to them kept alive, nothing written to disk, events passed on at once.

import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { freePort, Process } from "./process.js";
import { commandOf, fileBeside } from "./tools.js";

/** Something that the load may be sent to. */
export interface Target {
  readonly name: string;
  readonly port: number;
  /** None for the upstream itself. */
  readonly process: Process | undefined;
}

/** The two workers' ports, and where files may be written. */
interface Site {
  readonly workers: readonly number[];
  readonly directory: string;
}

export const HAWSER = "Hawser";
export const HAPROXY = "HAProxy";
export const NGINX = "nginx";

/** The peers by their commands. */
const PEERS = [
  { name: HAPROXY, command: "haproxy", start: startHaproxy },
  { name: NGINX, command: "nginx", start: startNginx },
];

/** Which peers are installed, in a line. */
export function peerLine(): string {
  const said = PEERS.map(({ name, command }) =>
    commandOf(command) ? name : `${name}: no ${command} on the PATH, left out`,
  );
  return `peers: ${said.join("; ")}`;
}

/** Starts what is installed of the peers, and Hawser. Where one does not start, those that did are stopped again. */
export async function startProxies(site: Site): Promise<Target[]> {
  const started: Target[] = [];
  try {
    for (const { name, command, start } of PEERS) {
      const file = commandOf(command);
      if (file) started.push(await start(name, file, await freePort(), site));
    }
    started.push(await startHawser(site));
    return started;
  } catch (error) {
    for (const { process } of started) await process?.stop();
    throw error;
  }
}

/** The real command, with the policy of the demo. */
async function startHawser({ workers, directory }: Site): Promise<Target> {
  const config = join(directory, "hawser.yaml");
  const list = workers.map((port, i) => `  - { id: w${i}, url: "http://127.0.0.1:${port}" }`).join("\n");
  writeFileSync(
    config,
    `listen: { port: 0 }
admin: { port: 0 }
workers:
${list}
worker_selection:
  aggregated: guard
  instances:
    - name: guard
      type: soft-affinity-load-guard
      parameters: { max_active_requests: 32, move_margin: 2, ties: random }
`,
  );
  const cli = fileBeside("../../build/host/cli/main.js");
  const hawser = new Process(HAWSER, process.execPath, [cli, "serve", "-c", config]);
  const line = await hawser.line();
  return { name: HAWSER, port: Number(/http:\S+:(\d+)/.exec(line)![1]), process: hawser };
}

/** Without `http-no-delay` it holds events back for up to 200 ms, as it expects more of them. */
async function startHaproxy(name: string, command: string, port: number, site: Site): Promise<Target> {
  const config = join(site.directory, "haproxy.cfg");
  const servers = site.workers
    .map((worker, i) => `  server w${i} 127.0.0.1:${worker} maxconn 4096`)
    .join("\n");
  writeFileSync(
    config,
    `global
  nbthread 1
  maxconn 4096
defaults
  mode http
  option http-no-delay
  timeout connect 2s
  timeout client 600s
  timeout server 600s
frontend clients
  bind 127.0.0.1:${port}
  default_backend workers
backend workers
  balance leastconn
  http-reuse always
  stick-table type string len 64 size 100k expire 30m
  stick on req.hdr(x-session-id)
${servers}
`,
  );
  return started({ name, port, process: new Process(name, command, ["-q", "-f", config]) });
}

async function startNginx(name: string, command: string, port: number, site: Site): Promise<Target> {
  const prefix = join(site.directory, "nginx");
  mkdirSync(prefix, { recursive: true });
  const config = join(prefix, "nginx.conf");
  const servers = site.workers.map((worker) => `    server 127.0.0.1:${worker};`).join("\n");
  const paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
  writeFileSync(
    config,
    `daemon off;
worker_processes 1;
worker_rlimit_nofile 4096;
pid nginx.pid;
error_log stderr error;
events { worker_connections 4096; }
http {
  access_log off;
${paths.map((path) => `  ${path}_temp_path ${path};`).join("\n")}
  client_max_body_size 64m;
  client_body_buffer_size 1m;
  keepalive_requests 1000000000;
  upstream workers {
    least_conn;
${servers}
    keepalive 512;
    keepalive_requests 1000000000;
  }
  server {
    listen 127.0.0.1:${port} backlog=4096;
    location / {
      proxy_pass http://workers;
      proxy_http_version 1.1;
      proxy_set_header Connection "";
      proxy_buffering off;
      proxy_read_timeout 600s;
    }
  }
}
`,
  );
  const args = ["-p", prefix, "-e", "stderr", "-c", config];
  return started({ name, port, process: new Process(name, command, args) });
}

async function started(target: Target & { process: Process }): Promise<Target> {
  try {
    await target.process.listening(target.port);
    return target;
  } catch (error) {
    await target.process.stop();
    throw error;
  }
}
