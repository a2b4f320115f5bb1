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
    #[prost(oneof = "Number", tags = "2, 5")]
    pub(super) number: Option<Number>,
}

/// A value: one number, or a distribution.
#[derive(Clone, PartialEq, Oneof)]
pub(super) enum Number {
    #[prost(float, tag = "2")]
    Simple(f32),
    #[prost(message, tag = "5")]
    Histogram(HistogramMessage),
}

#[derive(Clone, PartialEq, Message)]
pub(super) struct SummaryMetadata {
    #[prost(message, optional, tag = "1")]
    pub(super) plugin_data: Option<PluginData>,
    #[prost(string, tag = "3")]
    pub(super) summary_description: String,
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
