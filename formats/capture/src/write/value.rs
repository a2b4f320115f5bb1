//! Writes values in the format's own form; [`super::super::parse`] reads them back.

use super::super::keys::value as key;
use super::text::{Hole, JsonText};

/// A number about a tensor: known, undefined, or filled in later.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum NumberText {
    /// Undefined.
    Null,
    /// A number of a bool tensor.
    Bool(bool),
    /// A number of a signed integer tensor.
    Int(i64),
    /// A number of an unsigned integer tensor.
    UInt(u64),
    /// A number of a float tensor.
    Float(f64),
    /// Filled in later.
    Hole(Hole),
}

/// A tensor's checksum.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DigestText {
    /// Null: the elements cannot be read.
    Null,
    /// CRC-32.
    Crc32(u32),
    /// The exclusive or of the 64-bit words.
    Xor64(u64),
    /// Filled in later.
    Hole(Hole),
}

/// A document's data about a tensor.
#[derive(Clone, Copy, Debug)]
pub struct TensorText<'t> {
    /// The type, such as `torch.Tensor`.
    pub kind: &'t str,
    /// The dtype, such as `torch.float32`.
    pub dtype: &'t str,
    /// The sizes.
    pub shape: &'t [i64],
    /// Max, min, mean and norm; absent if only checksums are computed.
    pub numbers: Option<[NumberText; 4]>,
    /// Whether it requires gradients; absent if the framework has no such property.
    pub requires_grad: Option<bool>,
    /// `device_mesh` and `placements`, as JSON.
    pub spread: Option<(&'t str, &'t str)>,
    /// Whether its memory was allocated uninitialized in this capture.
    pub is_from_empty: bool,
    /// The hole for the name of the tensor's file, filled when the file is written.
    pub file: Option<Hole>,
    /// The checksum; absent if none is computed.
    pub digest: Option<DigestText>,
}

impl JsonText {
    /// Writes `{"type": kind, "value": …}`.
    pub fn typed(&mut self, kind: &str, value: impl FnOnce(&mut Self)) {
        self.begin_object();
        self.key(key::TYPE);
        self.text(kind);
        self.key(key::VALUE);
        value(self);
        self.end_object();
    }

    /// Writes a slice: start, stop, step.
    pub fn slice(&mut self, ends: [Option<i64>; 3]) {
        self.typed("slice", |json| {
            json.begin_list();
            for end in ends {
                if let Some(end) = end { json.int(end) } else { json.null() }
            }
            json.end_list();
        });
    }

    /// Writes a `torch.Size`.
    pub fn size(&mut self, sizes: &[i64]) {
        self.typed("torch.Size", |json| json.ints(sizes));
    }

    /// Writes a memory format.
    pub fn memory_format(&mut self, name: &str) {
        self.begin_object();
        self.key(key::TYPE);
        self.text("torch.memory_format");
        self.key(key::FORMAT);
        self.text(name);
        self.end_object();
    }

    /// Writes a group of ranks. Its id is the CRC-32 of the list as Python prints it.
    pub fn process_group(&mut self, ranks: &[u64]) {
        self.begin_object();
        self.key(key::TYPE);
        self.text("torch.ProcessGroup");
        self.key(key::GROUP_RANKS);
        self.begin_list();
        for &rank in ranks {
            self.unsigned(rank);
        }
        self.end_list();
        self.key(key::GROUP_ID);
        self.text(&group_id(ranks));
        self.end_object();
    }

    /// Begins a send or receive of a batch; its tensor follows.
    pub fn begin_peer(&mut self) {
        self.begin_object();
        self.key(key::CLASS_TYPE);
        self.text("torch.distributed.P2POp");
        self.key(key::TENSOR);
    }

    /// Ends it, with the operation, the other rank, the tag and the group.
    pub fn end_peer(&mut self, operation: &str, rank: i64, tag: i64, group: &[u64]) {
        self.key(key::OPERATION);
        self.text(operation);
        self.key(key::PEER);
        self.int(rank);
        self.key(key::TAG);
        self.int(tag);
        self.key(key::GROUP_ID);
        self.text(&group_id(group));
        self.end_object();
    }

    /// Writes a tensor or array.
    pub fn tensor(&mut self, tensor: &TensorText<'_>) {
        let TensorText { kind, dtype, shape, numbers, requires_grad, spread, is_from_empty, file, digest } = *tensor;
        self.begin_object();
        self.key(key::TYPE);
        self.text(kind);
        self.key(key::DTYPE);
        self.text(dtype);
        self.key(key::SHAPE);
        self.ints(shape);
        for (name, number) in numbers.iter().flat_map(|numbers| key::STATISTICS.into_iter().zip(numbers)) {
            self.key(name);
            self.number(*number);
        }
        // Without numbers, the checksum takes their place.
        if numbers.is_none() {
            self.digest(digest);
        }
        if let Some(requires_grad) = requires_grad {
            self.key(key::REQUIRES_GRAD);
            self.bool(requires_grad);
        }
        if let Some((mesh, placements)) = spread {
            self.key(key::DEVICE_MESH);
            self.raw(mesh.as_bytes());
            self.key(key::PLACEMENTS);
            self.raw(placements.as_bytes());
        }
        if is_from_empty {
            self.key(key::FROM_EMPTY);
            self.bool(true);
        }
        if let Some(hole) = file {
            self.member_hole(hole);
        }
        if numbers.is_some() {
            self.digest(digest);
        }
        self.end_object();
    }

    fn digest(&mut self, digest: Option<DigestText>) {
        let Some(digest) = digest else { return };
        self.key(key::DIGEST);
        match digest {
            DigestText::Null => self.null(),
            DigestText::Crc32(value) => self.text(&crc32_text(value)),
            DigestText::Xor64(value) => self.text(&xor64_text(value)),
            DigestText::Hole(hole) => self.hole(hole),
        }
    }

    /// Writes a number.
    pub fn number(&mut self, number: NumberText) {
        match number {
            NumberText::Null => self.null(),
            NumberText::Bool(value) => self.bool(value),
            NumberText::Int(value) => self.int(value),
            NumberText::UInt(value) => self.unsigned(value),
            NumberText::Float(value) => self.float(value),
            NumberText::Hole(hole) => self.hole(hole),
        }
    }

    fn ints(&mut self, numbers: &[i64]) {
        self.begin_list();
        for &number in numbers {
            self.int(number);
        }
        self.end_list();
    }
}

/// The filling for the hole of a tensor's file: `,"data_name":"…"`.
pub fn data_name_member(file: &str) -> Vec<u8> {
    let mut json = JsonText::new();
    json.begin_object();
    json.key(key::DATA_NAME);
    json.text(file);
    [b",", &json.as_bytes()[1..]].concat()
}

/// A CRC-32 in the format's notation.
pub fn crc32_text(value: u32) -> String {
    format!("{value:08x}")
}

/// An exclusive or of 64-bit words in the format's notation.
pub fn xor64_text(value: u64) -> String {
    format!("{value:#018x}")
}

/// A group's id: the CRC-32 of its ranks as Python prints the list.
pub fn group_id(ranks: &[u64]) -> String {
    let listed: Vec<String> = ranks.iter().map(ToString::to_string).collect();
    crc32_text(crc32fast::hash(format!("[{}]", listed.join(", ")).as_bytes()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn written(write: impl FnOnce(&mut JsonText)) -> String {
        let mut json = JsonText::new();
        write(&mut json);
        String::from_utf8(json.as_bytes().to_vec()).unwrap()
    }

    /// The expected texts are msprobe's.
    #[test]
    fn values_have_msprobes_form() {
        assert_eq!(written(|json| json.slice([Some(1), Some(10), None])), r#"{"type":"slice","value":[1,10,null]}"#);
        assert_eq!(written(|json| json.size(&[2, 3])), r#"{"type":"torch.Size","value":[2,3]}"#);
        let group = r#"{"type":"torch.ProcessGroup","group_ranks":[0,1],"group_id":"77849d8c"}"#;
        assert_eq!(written(|json| json.process_group(&[0, 1])), group);
        assert_eq!(
            written(|json| json.memory_format("channels_last")),
            r#"{"type":"torch.memory_format","format":"channels_last"}"#
        );
        assert_eq!(
            (crc32_text(0xa), xor64_text(0x0003_0201)),
            ("0000000a".to_owned(), "0x0000000000030201".to_owned())
        );
    }

    #[test]
    fn a_tensors_keys_stand_in_msprobes_order() {
        let tensor = TensorText {
            kind: "torch.Tensor",
            dtype: "torch.float32",
            shape: &[2],
            numbers: Some([
                NumberText::Float(2.0),
                NumberText::Float(1.0),
                NumberText::Null,
                NumberText::Hole(Hole(1)),
            ]),
            requires_grad: Some(false),
            spread: Some(("[0,1]", r#"[{"Shard":{"dim":0}}]"#)),
            is_from_empty: true,
            file: Some(Hole(2)),
            digest: Some(DigestText::Crc32(1)),
        };
        assert_eq!(
            written(|json| json.tensor(&tensor)),
            "{\"type\":\"torch.Tensor\",\"dtype\":\"torch.float32\",\"shape\":[2],\"Max\":2.0,\"Min\":1.0,\"Mean\":null,\"Norm\":\u{1}00000001,\
             \"requires_grad\":false,\"device_mesh\":[0,1],\"placements\":[{\"Shard\":{\"dim\":0}}],\"from_empty\":true\u{2}00000002,\"md5\":\"00000001\"}"
        );
        let summed = TensorText {
            numbers: None,
            spread: None,
            is_from_empty: false,
            digest: Some(DigestText::Xor64(3)),
            file: None,
            ..tensor
        };
        assert_eq!(
            written(|json| json.tensor(&summed)),
            r#"{"type":"torch.Tensor","dtype":"torch.float32","shape":[2],"md5":"0x0000000000000003","requires_grad":false}"#
        );
        assert_eq!(data_name_member("a b.pt"), br#","data_name":"a b.pt""#);
    }
}
