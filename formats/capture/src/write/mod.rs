//! Writes a capture: the record file while it runs, the documents when it ends.

mod directory;
mod documents;
mod error;
mod index;
mod reading;
mod record;
mod recorder;
mod tail;
mod text;
mod value;

pub use directory::{Opened, RankDirectory, RankName};
pub use documents::{Made, Missing, documents_of, left_over_records, recover};
pub use error::WriteError;
pub use record::{EntryRecord, Frames, Node};
pub use recorder::{Header, Recorder};
pub use text::{Hole, JsonText};
pub use value::{DigestText, NumberText, TensorText, crc32_text, data_name_member, group_id, xor64_text};
