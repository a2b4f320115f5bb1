// Search by words.

/** The words of a search, in lower case. */
export function wordsOf(filter: string): string[] {
  return filter.toLowerCase().split(/\s+/).filter(Boolean);
}

/** Words that all have to be in the text, in any order; case does not matter. */
export function matcher(filter: string): (text: string) => boolean {
  const words = wordsOf(filter);
  return (text) => {
    const lower = text.toLowerCase();
    return words.every((word) => lower.includes(word));
  };
}
