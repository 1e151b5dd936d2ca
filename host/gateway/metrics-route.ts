// Where Prometheus asks: on the admin listener, as any operator does.

import type { FastifyInstance } from "fastify";
import type { GatewayMetrics } from "./metrics.js";

/** Adds `GET /metrics`. */
export function addMetrics(app: FastifyInstance, metrics: GatewayMetrics): void {
  app.get("/metrics", async (_request, reply) => {
    return reply.type(metrics.contentType).send(await metrics.text());
  });
}
