// The shape of the config file: its keys, their types, ranges and defaults. `allowed` says in words what a
// pattern means.
import Type, { type Static } from "typebox";
import type { Credential } from "../gateway/options.js";
import { SOURCE_NAMES } from "../session/sources.js";
import { AccessSchema } from "./access.js";
import { DecisionLogSchema } from "./decision-log.js";
import { DiscoverySchema } from "./discovery.js";
import { DURATION_OR_OFF_PATTERN, DURATION_PATTERN } from "./duration.js";
import { ModelsSchema } from "./models.js";
import { SecretSchema } from "./secret.js";
import { SIZE_PATTERN } from "./size.js";

/** The most rows that a policy can be shown. */
const MAX_WORKERS = 16_384;

/** What stands for a key that the file leaves out; groups have the keys of the file. */
export const DEFAULTS = {
  host: "127.0.0.1",
  port: 8080,
  adminPort: 8081,
  weight: 100,
  mode: "soft",
  fullDeterminism: false,
  ttl: "30m",
  shutdownDeadline: "25s",
  maxBindings: 65_536,
  whenFull: "evict-idle",
  binding: "session",
  firstPlacement: "policy",
  allowPin: false,
  allowAffinityHeader: false,
  limits: {
    ...{ body: "64MiB", body_total: "1GiB" },
    ...{ stream_buffer: "1MiB", answer_buffer: "64MiB", buffered_total: "256MiB" },
  },
  timeouts: { connect: "2s", upload: "1m", first_byte: "30m", idle: "10m", total: "off" },
  retries: { attempts: 3, on: ["connect", "reset", 429, 502, 503], budget: 0.5, stateful: false },
  streams: { peek: false, keep_alive: "off" },
  log: { requests: "sampled", sample: 0.01 },
  forwardCredentials: [],
  health: {
    ...{ path: "/health", interval: "5s", timeout: "2s" },
    ...{ unhealthy_after: 2, healthy_after: 2, slow_start: "30s" },
  },
  breaker: {
    ...{ window: "30s", min_requests: 10, failure_ratio: 0.5, consecutive: 5 },
    ...{ open: "10s", open_max: "2m", half_open: 3 },
  },
  signals: { path: "/metrics", interval: "2s", stale_after: "10s" },
  admission: { queue: 1_024, deadline: "30s", bound_first: false },
} as const;

/** What an address may be listened on at. */
export const HOST_PATTERN = "^[A-Za-z0-9.:_-]{1,255}$";

/** Stands among sources for all of DEFAULT_SOURCES, in its place. */
export const DEFAULT = "default";
/** Sources that are written as a name alone. */
export const BARE_NAMES: readonly string[] = [...SOURCE_NAMES, DEFAULT];
/** What `session.sources` must be, in words. */
export const SOURCES_FORM = "a list of 1 to 64 sources";

/** Failures after which another worker may be tried: without an answer, or with one of these statuses. */
export const RETRY_CAUSES = ["connect", "reset", 429, 500, 502, 503, 504] as const;
export type RetryCause = (typeof RETRY_CAUSES)[number];
/** What an item of `retries.on` must be, in words. */
export const RETRY_CAUSE_FORM = `one of ${RETRY_CAUSES.join(", ")}`;

/** What may be named by `forward_credentials`. */
const FORWARDABLE: Credential[] = ["authorization", "x-api-key", "cookie"];

const DURATION_FORM = "a duration above zero with its unit, such as 500ms, 30s, 30m or 2h";

const strict = { additionalProperties: false };

const Host = Type.Optional(
  Type.String({
    pattern: HOST_PATTERN,
    allowed: "a host name or an IP address",
    default: DEFAULTS.host,
  }),
);

const port = (byDefault: number) =>
  Type.Optional(
    Type.Integer({
      ...{ minimum: 0, maximum: 65_535, default: byDefault },
      allowed: "a port from 1 to 65535, or 0 for any that is free",
    }),
  );

const ListenSchema = Type.Object({ host: Host, port: port(DEFAULTS.port) }, strict);

const AdminSchema = Type.Object(
  { host: Host, port: port(DEFAULTS.adminPort), token: Type.Optional(SecretSchema) },
  strict,
);

const WorkerSchema = Type.Object(
  {
    id: Type.String({
      pattern: "^[!-~]{1,128}$",
      allowed: "1 to 128 printable ASCII characters without spaces, since it becomes a header",
    }),
    url: Type.String(),
    models: Type.Optional(ModelsSchema),
    weight: Type.Optional(Type.Integer({ minimum: 1, maximum: 10_000, default: DEFAULTS.weight })),
    max_num_seqs: Type.Optional(Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1 })),
    max_in_flight: Type.Optional(Type.Integer({ minimum: 1, maximum: 2 ** 31 - 1 })),
    api_key: Type.Optional(SecretSchema),
  },
  strict,
);

const text = { type: "string" };

/** Names of sources and forms of fields are checked by the rules of sources, and so is a bare name that stands as a key. */
const SourceSchema = Type.Unsafe<unknown>({
  type: ["string", "object"],
  properties: { header: text, body: text, parent: text },
  patternProperties: { [`^(${BARE_NAMES.join("|")})$`]: {} },
  additionalProperties: false,
  allowed: "the name of a source, { header: NAME } or { body: PATH }",
});

/** A single source passes here: the rules of sources refuse it, and say how it is written. */
const SourcesSchema = Type.Unsafe<unknown>({
  type: ["array", "string", "object"],
  ...{ items: SourceSchema, minItems: 1, maxItems: 64 },
  allowed: SOURCES_FORM,
});

const TenantSchema = Type.Object(
  { header: Type.Optional(Type.String()), body: Type.Optional(Type.String()) },
  { ...strict, allowed: "{ header: NAME } or { body: PATH }" },
);

const ModelSuffixes = Type.Array(
  Type.String({
    pattern: "^[^\\u0000-\\u001f\\u007f]{1,64}$",
    allowed: "an ending of 1 to 64 characters without control characters",
  }),
  { maxItems: 16, allowed: "a list of at most 16 endings of model names" },
);

const duration = (otherwise: string) =>
  Type.Optional(
    Type.String({
      pattern: DURATION_PATTERN,
      allowed: DURATION_FORM,
      default: otherwise,
    }),
  );

const durationOrOff = (otherwise: string) =>
  Type.Optional(
    Type.String({
      pattern: DURATION_OR_OFF_PATTERN,
      allowed: `off, or ${DURATION_FORM}`,
      default: otherwise,
    }),
  );

const size = (otherwise: string) =>
  Type.Optional(
    Type.String({
      pattern: SIZE_PATTERN,
      allowed: "a size above zero with its unit (KB, MB, GB, KiB, MiB or GiB), such as 64KB or 64MiB",
      default: otherwise,
    }),
  );

const SessionSchema = Type.Object(
  {
    mode: Type.Optional(Type.Enum(["soft", "hard", "off"], { default: DEFAULTS.mode })),
    full_determinism: Type.Optional(Type.Boolean({ default: DEFAULTS.fullDeterminism })),
    ttl: duration(DEFAULTS.ttl),
    max_bindings: Type.Optional(
      Type.Integer({ minimum: 1, maximum: 2 ** 24, default: DEFAULTS.maxBindings }),
    ),
    when_full: Type.Optional(Type.Enum(["evict-idle", "refuse-new"], { default: DEFAULTS.whenFull })),
    binding: Type.Optional(Type.Enum(["session", "parent-group"], { default: DEFAULTS.binding })),
    first_placement: Type.Optional(Type.Enum(["policy", "parent"], { default: DEFAULTS.firstPlacement })),
    sources: Type.Optional(SourcesSchema),
    tenant: Type.Optional(TenantSchema),
    model_suffixes: Type.Optional(ModelSuffixes),
    allow_pin: Type.Optional(Type.Boolean({ default: DEFAULTS.allowPin })),
    allow_affinity_header: Type.Optional(Type.Boolean({ default: DEFAULTS.allowAffinityHeader })),
  },
  strict,
);

const InstanceSchema = Type.Object(
  {
    name: Type.String({
      pattern: "^[A-Za-z0-9._-]{1,64}$",
      allowed: "1 to 64 letters, digits, dots, dashes or underscores, since it becomes a header",
    }),
    type: Type.String({ minLength: 1, allowed: "the type of a policy" }),
    sha256: Type.Optional(
      Type.String({
        pattern: "^[0-9a-f]{64}$",
        allowed: "the SHA-256 of the module file, 64 lower-case hex digits",
      }),
    ),
    parameters: Type.Optional(
      Type.Unsafe<Record<string, unknown>>({ type: "object", allowed: "a mapping of parameters" }),
    ),
  },
  strict,
);

const Role = Type.Optional(Type.String({ minLength: 1, allowed: "the name of an instance, or default" }));

const SelectionSchema = Type.Object(
  {
    ...{ aggregated: Role, fallback: Role, prefill: Role, decode: Role, encode: Role },
    instances: Type.Optional(Type.Array(InstanceSchema)),
  },
  strict,
);

const { limits, timeouts, retries, streams, log } = DEFAULTS;

const LimitsSchema = Type.Object(
  {
    body: size(limits.body),
    body_total: size(limits.body_total),
    stream_buffer: size(limits.stream_buffer),
    answer_buffer: size(limits.answer_buffer),
    buffered_total: size(limits.buffered_total),
  },
  strict,
);

const TimeoutsSchema = Type.Object(
  {
    connect: duration(timeouts.connect),
    upload: durationOrOff(timeouts.upload),
    first_byte: durationOrOff(timeouts.first_byte),
    idle: durationOrOff(timeouts.idle),
    total: durationOrOff(timeouts.total),
  },
  strict,
);

/** What each item is, and that none is repeated, is checked by the rules of retries. */
const RetryCausesSchema = Type.Unsafe<readonly RetryCause[]>({
  type: "array",
  items: { type: ["string", "number"], allowed: RETRY_CAUSE_FORM },
  default: retries.on,
  allowed: `a list of distinct items of ${RETRY_CAUSES.join(", ")}`,
});

const RetriesSchema = Type.Object(
  {
    attempts: Type.Optional(Type.Integer({ minimum: 1, maximum: 16, default: retries.attempts })),
    on: Type.Optional(RetryCausesSchema),
    budget: Type.Optional(Type.Number({ minimum: 0, maximum: 1, default: retries.budget })),
    stateful: Type.Optional(Type.Boolean({ default: retries.stateful })),
  },
  strict,
);

const StreamsSchema = Type.Object(
  {
    peek: Type.Optional(Type.Boolean({ default: streams.peek })),
    keep_alive: durationOrOff(streams.keep_alive),
  },
  strict,
);

const LogSchema = Type.Object(
  {
    requests: Type.Optional(Type.Enum(["errors", "sampled", "all"], { default: log.requests })),
    sample: Type.Optional(Type.Number({ exclusiveMinimum: 0, maximum: 1, default: log.sample })),
  },
  strict,
);

const ForwardCredentials = Type.Array(Type.Enum(FORWARDABLE), {
  default: DEFAULTS.forwardCredentials,
  allowed: `a list of distinct items of ${FORWARDABLE.join(", ")}`,
});

const count = (otherwise: number, least = 1, most = 1_000_000) =>
  Type.Optional(Type.Integer({ minimum: least, maximum: most, default: otherwise }));

/** A path that a worker is asked at, or none: `off`. */
const pathOrOff = (otherwise: string) =>
  Type.Optional(
    Type.String({
      pattern: "^(off|/[!-~]{0,1023})$",
      allowed: `off, or a path that begins with a slash, such as ${otherwise}`,
      default: otherwise,
    }),
  );

const { health, breaker, signals, admission } = DEFAULTS;

const HealthSchema = Type.Object(
  {
    path: pathOrOff(health.path),
    interval: duration(health.interval),
    timeout: duration(health.timeout),
    unhealthy_after: count(health.unhealthy_after, 1, 1_000),
    healthy_after: count(health.healthy_after, 1, 1_000),
    slow_start: durationOrOff(health.slow_start),
  },
  strict,
);

/** The mapping, or the one word; which of its keys is wrong is told for the mapping alone. */
const BreakerSchema = Type.Unsafe<
  | "off"
  | {
      window?: string;
      min_requests?: number;
      failure_ratio?: number;
      consecutive?: number;
      open?: string;
      open_max?: string;
      half_open?: number;
    }
>({
  type: ["object", "string"],
  ...{ pattern: "^off$", additionalProperties: false, allowed: "off, or a mapping" },
  properties: {
    window: duration(breaker.window),
    min_requests: count(breaker.min_requests),
    failure_ratio: Type.Number({ exclusiveMinimum: 0, maximum: 1, default: breaker.failure_ratio }),
    consecutive: count(breaker.consecutive),
    open: duration(breaker.open),
    open_max: duration(breaker.open_max),
    half_open: count(breaker.half_open),
  },
});

const SignalsSchema = Type.Object(
  {
    path: pathOrOff(signals.path),
    interval: duration(signals.interval),
    stale_after: duration(signals.stale_after),
  },
  strict,
);

const AdmissionSchema = Type.Object(
  {
    queue: count(admission.queue, 0),
    deadline: duration(admission.deadline),
    bound_first: Type.Optional(Type.Boolean({ default: admission.bound_first })),
  },
  strict,
);

/** What `PUT /admin/workers/{id}` takes: a worker whose id stands in the path, and whose key is no business of a caller. */
export const WorkerEntrySchema = Type.Omit(WorkerSchema, ["id", "api_key"], strict);

/** The whole file. */
export const ConfigSchema = Type.Object(
  {
    listen: Type.Optional(ListenSchema),
    admin: Type.Optional(AdminSchema),
    shutdown: Type.Optional(Type.Object({ deadline: duration(DEFAULTS.shutdownDeadline) }, strict)),
    policies: Type.Optional(
      Type.Object(
        { path: Type.Optional(Type.Array(Type.String({ minLength: 1, allowed: "a directory" }))) },
        strict,
      ),
    ),
    workers: Type.Optional(
      Type.Array(WorkerSchema, {
        maxItems: MAX_WORKERS,
        allowed: `a list of at most ${MAX_WORKERS} workers`,
      }),
    ),
    discovery: Type.Optional(DiscoverySchema),
    session: Type.Optional(SessionSchema),
    worker_selection: Type.Optional(SelectionSchema),
    limits: Type.Optional(LimitsSchema),
    timeouts: Type.Optional(TimeoutsSchema),
    retries: Type.Optional(RetriesSchema),
    streams: Type.Optional(StreamsSchema),
    log: Type.Optional(LogSchema),
    decision_log: Type.Optional(DecisionLogSchema),
    forward_credentials: Type.Optional(ForwardCredentials),
    access: Type.Optional(AccessSchema),
    health: Type.Optional(HealthSchema),
    breaker: Type.Optional(BreakerSchema),
    signals: Type.Optional(SignalsSchema),
    admission: Type.Optional(AdmissionSchema),
  },
  strict,
);

/** The file's content once its shape is known to be right. */
export type RawConfig = Static<typeof ConfigSchema>;
