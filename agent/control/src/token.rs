//! Authorization over HTTP: a token in a file that only its owner can read.

use std::fs::{self, OpenOptions};
use std::io::{self, Write as _};
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;

use subtle::ConstantTimeEq as _;

use super::rank_store::hex;

/// 256 bits.
const TOKEN_BYTES: usize = 32;

/// A secret of this run.
pub(super) struct Token(String);

impl Token {
    /// Creates a token and writes it to a file of mode 0600. Replaces an older file of that name.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        let mut bytes = [0; TOKEN_BYTES];
        getrandom::fill(&mut bytes).map_err(io::Error::other)?;
        let token = Self(hex(&bytes));
        match fs::remove_file(path) {
            Err(error) if error.kind() != io::ErrorKind::NotFound => return Err(error),
            _ => {}
        }
        // Created with its mode, so that no other process has it open and no symbolic link is followed.
        let mut file = OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
        writeln!(file, "{}", token.0)?;
        Ok(token)
    }

    /// Whether an `Authorization` header contains this token, in constant time for tokens of the same length.
    pub(super) fn is_in(&self, header: &[u8]) -> bool {
        let scheme = b"bearer ";
        let Some((name, given)) = header.split_at_checked(scheme.len()) else { return false };
        name.eq_ignore_ascii_case(scheme) && bool::from(given.ct_eq(self.0.as_bytes()))
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn the_file_is_its_owners_alone_and_its_token_opens() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("token");
        fs::write(&path, "an old one, readable by all").unwrap();
        let token = Token::create(&path).unwrap();
        assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o777, 0o600);
        let text = fs::read_to_string(&path).unwrap();
        let word = text.trim_end();
        assert_eq!(word.len(), 2 * TOKEN_BYTES);
        assert!(token.is_in(format!("Bearer {word}").as_bytes()));
        for wrong in [String::new(), word.to_owned(), format!("Bearer {}", &word[1..]), format!("Basic {word}")] {
            assert!(!token.is_in(wrong.as_bytes()), "{wrong}");
        }
        assert!(!Token::create(&path).unwrap().is_in(format!("Bearer {word}").as_bytes()), "drawn anew");
    }
}
