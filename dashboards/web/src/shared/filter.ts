// Search by words.

/** The words of a search, in lower case. */
export function wordsOf(filter: string): string[] {
  return filter.toLowerCase().split(/\s+/).filter(Boolean);
}

/** Matches texts that contain all words, in any order and case. */
export function matcher(filter: string): (text: string) => boolean {
  const words = wordsOf(filter);
  return (text) => {
    const lower = text.toLowerCase();
    return words.every((word) => lower.includes(word));
  };
}
