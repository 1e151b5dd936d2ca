// The rules of the keys that workers ask for.
import { list, mapping, type Raw, type Remarks } from "./remarks.js";
import { headerBreach, readSecret, type SecretPlaces } from "./secret.js";

/**
 * Applies the rules to what is below a key of the root of a config; returns the key of each entry in their order, undefined where
 * there is none.
 */
export function readApiKeys(
  root: Raw,
  below: "workers" | "discovery",
  places: SecretPlaces,
  remarks: Remarks,
): readonly (string | undefined)[] {
  return list(root[below]).map((entry, index) => {
    const value = mapping(entry).api_key;
    const secret = readSecret([below, index, "api_key"], value, places, remarks);
    const breach = secret && headerBreach(secret.text);
    if (secret === undefined || breach === undefined) return secret?.text;
    const message = `the API key in ${secret.origin} must be printable ASCII characters without spaces, since it becomes a header, but ${breach}`;
    remarks.mistake(secret.path, "value", message);
    return undefined;
  });
}
