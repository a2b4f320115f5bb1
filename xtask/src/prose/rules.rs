//! What is wrong with a sentence.

/// Words of a sentence, at most. The style guide recommends 20.
const MOST_WORDS: usize = 35;
/// Words of a clause with a main clause behind it, at least, where no full stop shows the sentence.
const FEWEST_WORDS: usize = 8;
/// Phrases that the style guide replaces, in lower case, with what to write.
const REPLACED: &[(&str, &str)] = &[
    ("is told", "prints, reports, logs"),
    ("are told", "prints, reports, logs"),
    ("was told", "printed, reported, logged"),
    ("were told", "printed, reported, logged"),
    ("be told", "print, report, log"),
    ("is said", "prints, reports, logs"),
    ("are said", "prints, reports, logs"),
    ("was said", "printed, reported, logged"),
    ("be said", "print, report, log"),
    ("says so", "prints, reports, logs"),
    ("asked for", "requested"),
    ("asks for", "requests"),
    ("one's own", "your own, custom"),
    ("hangs on", "depends on"),
    ("hang on", "depends on"),
    ("as it is", "unchanged"),
    ("that is there", "present, existing"),
    ("that are there", "present, existing"),
    ("is there yet", "exists yet"),
    ("is there already", "already exists"),
    ("comes in", "arrives"),
    ("come in", "arrive"),
    ("apart by", "differ by"),
    ("lie apart", "differ"),
    ("are apart", "differ"),
    ("without a word", "by default, silently"),
    ("nobody", "name the actor"),
    ("whoever", "name the actor"),
    ("stands beside", "is next to"),
    ("stand beside", "are next to"),
    ("beside it stands", "is next to it"),
    ("the books", "the counters"),
    ("waiting room", "queue"),
    ("whereabouts", "location"),
    ("holds good", "applies"),
    ("is let go", "is released"),
    ("lets go of", "releases"),
];
/// Clauses that begin so are the subject of their sentence; only a question may.
const CLAUSES: [&str; 4] = ["what", "who", "whichever", "that which"];

/// What is wrong with each sentence of a text: what, and the sentence.
pub(super) fn broken(text: &str) -> Vec<String> {
    sentences(text)
        .filter_map(|sentence| fault(sentence).map(|fault| format!("{fault}: {}", shown(sentence))))
        .collect()
}

fn fault(sentence: &str) -> Option<String> {
    let words = words(sentence);
    if words.len() > MOST_WORDS {
        return Some(format!("{} words in a sentence, at most {MOST_WORDS}", words.len()));
    }
    let joined = format!(" {} ", words.join(" "));
    // A heading or a table cell such as "What moved first" is no sentence.
    let is_heading = words.len() < FEWEST_WORDS && !sentence.ends_with('.');
    let is_question = sentence.trim_end_matches(['"', ')', '*', '_']).ends_with('?');
    if !is_question && !is_heading && CLAUSES.iter().any(|clause| joined.starts_with(&format!(" {clause} "))) {
        return Some("a clause is the subject: name the actor".to_owned());
    }
    let (phrase, instead) = REPLACED.iter().find(|(phrase, _)| joined.contains(&format!(" {phrase} ")))?;
    Some(format!("`{phrase}`: write {instead}"))
}

/// Code as one word of its sentence.
pub(super) fn as_word(code: &str) -> String {
    code.replace([' ', '.', '?', '!'], "_")
}

/// The words in lower case, without the punctuation around them.
fn words(sentence: &str) -> Vec<String> {
    let trimmed = sentence.split_whitespace().map(|word| word.trim_matches(|letter: char| !letter.is_alphanumeric()));
    trimmed.filter(|word| !word.is_empty()).map(str::to_lowercase).collect()
}

/// A sentence ends with a full stop, a question or exclamation mark, and white space or the end behind it.
fn sentences(text: &str) -> impl Iterator<Item = &str> {
    let mut rest = text;
    std::iter::from_fn(move || {
        let mut from = 0;
        loop {
            if rest.is_empty() {
                return None;
            }
            let Some(found) = rest[from..].find(['.', '?', '!']) else {
                return Some(std::mem::take(&mut rest));
            };
            let end = from + found + 1;
            let behind = &rest[end..];
            let skipped = behind.len() - behind.trim_start_matches(['"', ')', '*', '_', '`']).len();
            let end = end + skipped;
            if rest[end..].chars().next().is_none_or(char::is_whitespace) && !is_abbreviation(&rest[..end]) {
                let (sentence, behind) = rest.split_at(end);
                rest = behind.trim_start();
                return Some(sentence);
            }
            from = end;
        }
    })
}

fn is_abbreviation(text: &str) -> bool {
    ["e.g.", "i.e.", "vs.", "etc."].iter().any(|short| text.ends_with(short))
}

/// A sentence on one line, cut where it is long.
fn shown(sentence: &str) -> String {
    let line = sentence.split_whitespace().collect::<Vec<_>>().join(" ");
    if line.chars().count() > 160 { line.chars().take(159).chain(['…']).collect() } else { line }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_sentence_a_clause_as_subject_and_a_replaced_phrase_are_refused() {
        let long = "word ".repeat(36);
        assert_eq!(broken(&format!("Short. {long}.")).len(), 1);
        assert_eq!(
            broken("What was missed is new."),
            ["a clause is the subject: name the actor: What was missed is new."]
        );
        assert_eq!(
            broken("The error is told at once."),
            ["`is told`: write prints, reports, logs: The error is told at once."]
        );
        assert_eq!(broken("Nothing else. It\nhangs on (both) ranks").len(), 1);
    }

    #[test]
    fn questions_numbers_and_names_are_sentences_of_their_own() {
        assert_eq!(broken("What does it cost? It takes 1.5 ms, e.g. for `a.b`. Basis told."), [""; 0]);
        let all: Vec<&str> = sentences("Takes 1.5 ms, e.g. twice. Read `a.b.` (It works.) Done").collect();
        assert_eq!(all, ["Takes 1.5 ms, e.g. twice.", "Read `a.b.`", "(It works.)", "Done"]);
    }
}
