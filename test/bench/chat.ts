// The bodies that the gateway's bench sends.

/** A chat request of about `bytes` bytes, in messages of a kilobyte. */
export function chatBody(bytes: number, stream: boolean): string {
  const messages: { role: string; content: string }[] = [];
  const text = 'The quick brown fox jumps over the lazy dog, said "Hawser".\n'.repeat(16);
  for (let left = bytes - 40; left > 0; left -= 1_060) {
    messages.push({
      role: messages.length % 2 ? "assistant" : "user",
      content: text.slice(0, Math.max(8, left - 60)),
    });
  }
  return JSON.stringify({ model: "m", stream, messages });
}
