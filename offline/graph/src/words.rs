//! The texts of the database for the legend and the tool tips of a page.

use trainmon_compare::compat::Mode;

use crate::json::Object;
use crate::metrics::GraphTask;

/// Explanations of the metrics.
pub(crate) fn tool_tips(task: GraphTask) -> String {
    let tips: &[(&str, &str)] = match task {
        GraphTask::Values(Mode::Statistics) => &[
            ("Max diff", "Maximum of the target minus maximum of the baseline"),
            ("Min diff", "Minimum of the target minus minimum of the baseline"),
            ("Mean diff", "Mean of the target minus mean of the baseline"),
            ("L2norm diff", "L2 norm of the target minus L2 norm of the baseline"),
        ],
        GraphTask::Values(Mode::Tensor) => &[
            ("Cosine", ""),
            ("EucDist", ""),
            ("MaxAbsErr", ""),
            ("MaxRelativeErr", ""),
            ("One Thousandth Err Ratio", ""),
            ("Five Thousandths Err Ratio", ""),
        ],
        GraphTask::Values(Mode::Digest) => &[("md5", "Checksum of the data: equal if every bit is equal")],
        GraphTask::Structure => &[],
    };
    let mut json = Object::new();
    for (key, tip) in tips {
        json.text(key, tip);
    }
    json.finish()
}

/// The colour of each range of precision indices.
pub(crate) fn colours(task: GraphTask) -> String {
    let [pass, warning, error] = match task {
        GraphTask::Values(Mode::Digest) => {
            ["Every checksum is equal", "At least 1 checksum differs", "At least 1 checksum differs"]
        }
        _ => ["Every value passes", "At least 1 value has a warning", "At least 1 value has an error"],
    };
    let colour = |range: &str, description: &str, level: &str| {
        let mut json = Object::new();
        json.json("value", range);
        json.text("description", description);
        json.text("accuracy_level", level);
        json.finish()
    };
    let mut json = Object::new();
    json.json("#FFFCF3", &colour("[0, 0.3]", pass, "pass"));
    json.json("#FFDC7F", &colour("[0.3, 0.6]", warning, "warning"));
    json.json("#FF704D", &colour("[0.6, 1]", error, "error"));
    json.json("#C7C7C7", &colour("[]", "The other side has no such node", "unmatched node"));
    json.finish()
}
