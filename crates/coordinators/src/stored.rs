//! What a coordinator keeps of a candidate: its id, and its value from the second line on. Tools that only know
//! ids, such as Apache Curator, see the id alone where there is no value.

use crate::{Campaign, Leader};

/// What is kept of a candidate.
pub(crate) fn encode(campaign: &Campaign) -> String {
    if campaign.value.is_empty() {
        campaign.id.clone()
    } else {
        format!("{}\n{}", campaign.id, campaign.value)
    }
}

/// The leader of whom this is kept. Other programs may have written anything.
pub(crate) fn decode(stored: &[u8], fence: u64) -> Leader {
    let text = String::from_utf8_lossy(stored);
    let (id, value) = text.split_once('\n').unwrap_or((&text, ""));
    Leader { id: id.to_owned(), value: value.to_owned(), fence }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn id_and_value_come_back() {
        let mut campaign = Campaign::new("n", "server-1", Duration::from_secs(10));
        assert_eq!(encode(&campaign), "server-1");
        assert_eq!(decode(b"server-1", 7), Leader { id: "server-1".into(), value: String::new(), fence: 7 });
        campaign.value = "http://a\nb".to_owned();
        let leader = decode(encode(&campaign).as_bytes(), 8);
        assert_eq!((leader.id.as_str(), leader.value.as_str()), ("server-1", "http://a\nb"));
        assert_eq!(decode(&[0xff], 1).id, "\u{fffd}");
    }
}
