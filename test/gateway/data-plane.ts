// What `GET /health` tells of the data plane.
import { get } from "./client.js";

export interface DataPlaneView {
  readonly requests_in_flight: number;
  readonly body_bytes: number;
  readonly buffered_bytes: number;
  readonly retries: number;
  readonly retries_refused: number;
  readonly outcomes: Readonly<Record<string, number>>;
}

export async function dataPlaneOf(url: string): Promise<DataPlaneView> {
  return ((await get(`${url}/health`)).body as { data_plane: DataPlaneView }).data_plane;
}

/** Asks until `holds` does. */
export async function untilDataPlane(
  url: string,
  holds: (seen: DataPlaneView) => boolean,
): Promise<DataPlaneView> {
  for (;;) {
    const seen = await dataPlaneOf(url);
    if (holds(seen)) return seen;
  }
}
