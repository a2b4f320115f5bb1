//! Reading of text files that are still being written.

use std::io::{self, Read, Seek, SeekFrom};

/// The end of the last complete line, after its newline. `None` if the last `reach` bytes of the file contain no
/// newline. Reads slightly more than `reach` bytes.
///
/// # Errors
/// The file cannot be read.
pub fn end_of_last_line(file: &mut (impl Read + Seek), reach: u64) -> io::Result<Option<u64>> {
    const GRAIN: u64 = 1 << 16;
    let length = file.seek(SeekFrom::End(0))?;
    let mut end = length;
    while end > 0 && length - end <= reach {
        let start = end.saturating_sub(GRAIN);
        let mut part = Vec::new();
        file.seek(SeekFrom::Start(start))?;
        file.by_ref().take(end - start).read_to_end(&mut part)?;
        if let Some(newline) = part.iter().rposition(|&byte| byte == b'\n') {
            return Ok(Some(start + newline as u64 + 1));
        }
        end = start;
    }
    Ok(None)
}

#[cfg(test)]
mod tests {
    use std::io::{Cursor, Write as _};

    use super::*;

    #[test]
    fn the_search_for_the_last_line_goes_as_far_back_as_it_may() {
        let mut file = Cursor::new(Vec::new());
        assert_eq!(end_of_last_line(&mut file, u64::MAX).unwrap(), None);
        file.write_all(b"a,1\n").unwrap();
        assert_eq!(end_of_last_line(&mut file, 0).unwrap(), Some(4));
        file.write_all(&vec![b'x'; 200_000]).unwrap();
        assert_eq!(end_of_last_line(&mut file, 200_000).unwrap(), Some(4));
        assert_eq!(end_of_last_line(&mut file, 100_000).unwrap(), None);
    }
}
