/** A policy that cannot be built: what the compiler says, or one sentence. */
export class BuildError extends Error {
  override readonly name = "BuildError";
}
