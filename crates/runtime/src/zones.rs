//! Which zones are answered for, and for how long an answer may be kept.

use clap::Args;
use tombolo_dns::{TTL_DEFAULT_SECS, WireName, Zones};

/// A cached answer is wrong for as long as this after an endpoint went: more than an hour is a
/// slip of the keyboard.
const TTL_MAX_SECS: u32 = 3_600;

/// The zones.
#[derive(Clone, Debug, Args)]
pub(crate) struct ZoneArgs {
    /// The zones that are answered for, all with the same services.
    #[arg(
        long,
        value_name = "NAME",
        env = "TOMBOLO_ZONE",
        value_delimiter = ',',
        default_value = "clusterset.local"
    )]
    pub(crate) zone: Vec<String>,

    /// For how many seconds an answer may be kept, a negative one too.
    #[arg(long, value_name = "SECONDS", env = "TOMBOLO_TTL", default_value_t = TTL_DEFAULT_SECS)]
    pub(crate) ttl: u32,
}

impl ZoneArgs {
    /// The zones, or all that is wrong with them.
    pub(crate) fn zones(&self) -> Result<Zones, Vec<String>> {
        let Self { zone, ttl } = self;
        let mut wrong = Vec::new();
        let mut apexes = Vec::new();
        for text in zone {
            match WireName::parse(text.trim()) {
                Ok(name) if name.as_bytes() == [0] => {
                    wrong.push("--zone: the root is no zone of a clusterset".to_owned());
                }
                Ok(name) => apexes.push(name),
                Err(error) => wrong.push(format!("--zone: {error}")),
            }
        }
        if *ttl > TTL_MAX_SECS {
            wrong.push(format!("--ttl {ttl}: it is at most {TTL_MAX_SECS}"));
        }
        if wrong.is_empty() {
            Ok(Zones::new(apexes, *ttl))
        } else {
            Err(wrong)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn zones(zone: &[&str], ttl: u32) -> Result<usize, Vec<String>> {
        let zone = zone.iter().map(|&text| text.to_owned()).collect();
        ZoneArgs { zone, ttl }.zones().map(|zones| zones.len())
    }

    #[test]
    fn everything_that_is_wrong_is_said() {
        assert_eq!(zones(&["clusterset.local", "example.com."], 5), Ok(2));
        let wrong = zones(&["a..b", ".", "ok.example"], 4_000).unwrap_err();
        assert_eq!(wrong.len(), 3, "{wrong:?}");
    }
}
