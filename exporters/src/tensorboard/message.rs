//! The protobuf messages of event files, with the fields in use and their public numbers.

use prost::{Message, Oneof};

/// One record of an event file.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Event {
    #[prost(double, tag = "1")]
    pub(super) wall_time: f64,
    #[prost(int64, tag = "2")]
    pub(super) step: i64,
    #[prost(oneof = "What", tags = "3, 5")]
    pub(super) what: Option<What>,
}

/// The contents of a record.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum What {
    /// The format; the first record of every file.
    #[prost(string, tag = "3")]
    FileVersion(String),
    /// Values of one step.
    #[prost(message, tag = "5")]
    Summary(Summary),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct Summary {
    #[prost(message, repeated, tag = "1")]
    pub(super) value: Vec<SummaryValue>,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryValue {
    #[prost(string, tag = "1")]
    pub(super) tag: String,
    #[prost(message, optional, tag = "9")]
    pub(super) metadata: Option<SummaryMetadata>,
    #[prost(oneof = "Content", tags = "2, 5, 8")]
    pub(super) content: Option<Content>,
}

/// A value: one number, a distribution, or a tensor (used for texts, and by newer writers for numbers).
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Content {
    #[prost(float, tag = "2")]
    Simple(f32),
    #[prost(message, tag = "5")]
    Histogram(HistogramMessage),
    #[prost(message, tag = "8")]
    Tensor(TensorMessage),
}

/// A tensor: its elements as bytes, or in the field of their type.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TensorMessage {
    #[prost(int32, tag = "1")]
    pub(super) dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
    #[prost(bytes = "vec", tag = "4")]
    pub(super) content: Vec<u8>,
    #[prost(float, repeated, tag = "5")]
    pub(super) floats: Vec<f32>,
    #[prost(double, repeated, tag = "6")]
    pub(super) doubles: Vec<f64>,
    #[prost(int32, repeated, tag = "7")]
    pub(super) ints: Vec<i32>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(super) text: Vec<Vec<u8>>,
    #[prost(int64, repeated, tag = "10")]
    pub(super) longs: Vec<i64>,
}

impl TensorMessage {
    /// `DT_FLOAT`.
    const FLOAT: i32 = 1;
    /// `DT_DOUBLE`.
    const DOUBLE: i32 = 2;
    /// `DT_INT32`.
    const INT32: i32 = 3;
    /// `DT_STRING`.
    const STRING: i32 = 7;
    /// `DT_INT64`.
    const INT64: i32 = 9;

    /// A text tensor without dimensions.
    pub(super) fn of_text(text: &str) -> Self {
        let shape = Some(Shape::default());
        Self { dtype: Self::STRING, shape, text: vec![text.as_bytes().to_vec()], ..Self::default() }
    }

    /// The number in a tensor without dimensions; `None` for other tensors.
    pub(super) fn scalar(&self) -> Option<f64> {
        if self.shape.as_ref().is_some_and(|shape| !shape.dim.is_empty()) {
            return None;
        }
        let content = &self.content[..];
        match self.dtype {
            Self::FLOAT => {
                let stored = || content.try_into().ok().map(f32::from_le_bytes);
                self.floats.first().copied().or_else(stored).map(f64::from)
            }
            Self::DOUBLE => self.doubles.first().copied().or_else(|| content.try_into().ok().map(f64::from_le_bytes)),
            Self::INT32 => {
                let stored = || content.try_into().ok().map(i32::from_le_bytes);
                self.ints.first().copied().or_else(stored).map(f64::from)
            }
            Self::INT64 => {
                let stored = || content.try_into().ok().map(i64::from_le_bytes);
                self.longs.first().copied().or_else(stored).map(|value| value as f64)
            }
            _ => None,
        }
    }
}

/// The sizes of a tensor; empty for a single number or text.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {
    #[prost(message, repeated, tag = "2")]
    pub(super) dim: Vec<Dimension>,
}

/// One size of a tensor.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Dimension {
    #[prost(int64, tag = "1")]
    pub(super) size: i64,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    pub(super) plugin_data: Option<PluginData>,
    #[prost(string, tag = "3")]
    pub(super) summary_description: String,
    /// Required for texts only: readers recognize the others.
    #[prost(int32, tag = "4")]
    pub(super) data_class: i32,
}

impl SummaryMetadata {
    /// Shown unchanged, neither as a line nor as an image.
    pub(super) const TENSOR: i32 = 2;
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct PluginData {
    #[prost(string, tag = "1")]
    pub(super) plugin_name: String,
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct HistogramMessage {
    #[prost(double, tag = "1")]
    pub(super) min: f64,
    #[prost(double, tag = "2")]
    pub(super) max: f64,
    #[prost(double, tag = "3")]
    pub(super) num: f64,
    #[prost(double, tag = "4")]
    pub(super) sum: f64,
    #[prost(double, tag = "5")]
    pub(super) sum_squares: f64,
    /// The upper limit of each bucket (exclusive).
    #[prost(double, repeated, tag = "6")]
    pub(super) bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) bucket: Vec<f64>,
}
