// `hawser/assembly`: the SDK, under the name by which policies outside this repository import it.
export * from "./sdk";
