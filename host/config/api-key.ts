// The rules of the keys that workers ask for.
import { list, mapping, type Raw, type Remarks } from "./remarks.js";
import { headerBreach, readSecret, type SecretPlaces } from "./secret.js";

/** Applies the rules to the root of a config; returns each worker's key in their order, undefined where there is none. */
export function readApiKeys(
  root: Raw,
  places: SecretPlaces,
  remarks: Remarks,
): readonly (string | undefined)[] {
  return list(root.workers).map((worker, index) => {
    const value = mapping(worker).api_key;
    const secret = readSecret(["workers", index, "api_key"], value, places, remarks);
    const breach = secret && headerBreach(secret.text);
    if (secret === undefined || breach === undefined) return secret?.text;
    const message = `the API key in ${secret.origin} must be printable ASCII characters without spaces, since it becomes a header, but ${breach}`;
    remarks.mistake(secret.path, "value", message);
    return undefined;
  });
}
