//! The protobuf messages of event files, with the fields that are written and their public numbers.

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

/// What a record says.
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

/// A value: one number, a distribution, or a text.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Content {
    #[prost(float, tag = "2")]
    Simple(f32),
    #[prost(message, tag = "5")]
    Histogram(HistogramMessage),
    #[prost(message, tag = "8")]
    Text(TextMessage),
}

/// A tensor without dimensions that holds a text.
#[derive(Clone, PartialEq, Message)]
pub(super) struct TextMessage {
    #[prost(int32, tag = "1")]
    pub(super) dtype: i32,
    #[prost(message, optional, tag = "2")]
    pub(super) shape: Option<Shape>,
    #[prost(bytes = "vec", repeated, tag = "8")]
    pub(super) text: Vec<Vec<u8>>,
}

impl TextMessage {
    /// `DT_STRING`.
    const STRING: i32 = 7;

    pub(super) fn new(text: &str) -> Self {
        Self { dtype: Self::STRING, shape: Some(Shape {}), text: vec![text.as_bytes().to_vec()] }
    }
}

/// No dimensions.
#[derive(Clone, PartialEq, Message)]
pub(super) struct Shape {}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    pub(super) plugin_data: Option<PluginData>,
    #[prost(string, tag = "3")]
    pub(super) summary_description: String,
    /// Needed for texts only: readers know the others by themselves.
    #[prost(int32, tag = "4")]
    pub(super) data_class: i32,
}

impl SummaryMetadata {
    /// Shown as it is, neither as a line nor as an image.
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
    /// The upper end of each bucket, not part of it.
    #[prost(double, repeated, tag = "6")]
    pub(super) bucket_limit: Vec<f64>,
    #[prost(double, repeated, tag = "7")]
    pub(super) bucket: Vec<f64>,
}
