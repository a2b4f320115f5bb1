//! Removes passwords and tokens from a config before it is stored in a file.

use serde_json::Value;

const HIDDEN: &str = "(hidden)";

/// Removes secrets: reduces every address to its scheme and host, every header to its name, and every command to its
/// program. Tokens occur in user names, paths, queries and headers.
pub(super) fn without_secrets(mut config: Value) -> Value {
    hide(&mut config);
    config
}

fn hide(value: &mut Value) {
    match value {
        Value::String(text) => {
            if let Some(cut) = cut_address(text) {
                *text = cut;
            }
        }
        Value::Array(values) => values.iter_mut().for_each(hide),
        Value::Object(members) => {
            for (key, member) in members {
                match member {
                    Value::Object(headers) if key == "headers" => {
                        headers.values_mut().for_each(|header| *header = HIDDEN.into());
                    }
                    // Any argument of the program may be a token.
                    Value::Array(words) if key == "run" => {
                        words.iter_mut().skip(1).for_each(|word| *word = HIDDEN.into());
                    }
                    member => hide(member),
                }
            }
        }
        Value::Null | Value::Bool(_) | Value::Number(_) => {}
    }
}

/// The text up to the end of the host of its first address; `None` without an address.
fn cut_address(text: &str) -> Option<String> {
    let (scheme, rest) = text.split_once("://")?;
    let authority = rest.split(['/', '?', '#']).next().unwrap_or_default();
    let host = authority.rsplit('@').next().unwrap_or_default();
    let is_all = host.len() == rest.len() || rest.strip_prefix(host) == Some("/");
    Some(if is_all { text.to_owned() } else { format!("{scheme}://{host}/{HIDDEN}") })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn addresses_end_with_their_host_and_headers_with_their_name() {
        let config = json!({
            "url": "https://user:pa55@hooks.example:8443/T0/B0/s3cret?token=t#f", "plain": "http://host:4318/",
            "bare": "http://host?key=s3cret", "command": ["curl", "--url=http://a/s3cret http://b/s3cret"],
            "headers": {"x-key": "s3cret"}, "output_dir": "/data/out", "steps": 3,
            "alert": {"command": {"run": ["/bin/page", "-H", "Authorization: s3cret"]}}
        });
        let expected = json!({
            "url": "https://hooks.example:8443/(hidden)", "plain": "http://host:4318/",
            "bare": "http://host/(hidden)", "command": ["curl", "--url=http://a/(hidden)"],
            "headers": {"x-key": "(hidden)"}, "output_dir": "/data/out", "steps": 3,
            "alert": {"command": {"run": ["/bin/page", "(hidden)", "(hidden)"]}}
        });
        assert_eq!(without_secrets(config), expected);
    }
}
