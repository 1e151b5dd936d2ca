// What is asked of the decision log.

export interface DecisionLogOptions {
  /** The file that is written; those before it are `file.1`, the latest of them, `file.2` and so on. */
  readonly file: string;
  /** Share of the sessions whose decisions are logged, above 0 to 1; of requests without one the same share. */
  readonly sample: number;
  /** `read`: what the deciding policy reads. `all`: whatever the host fills, for other policies to be run over it. */
  readonly columns: "read" | "all";
  /** Bytes after which a file is followed by the next, 1,000 or more. */
  readonly maxBytes: number;
  /** Files that are kept in all, 1 to 1,000. */
  readonly maxFiles: number;
}
