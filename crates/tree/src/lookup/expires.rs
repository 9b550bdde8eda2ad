//! The recorder of a lookup that asks when the value of a key expires.

use shamba_key::Expiry;

use super::explain::Recorder;

/// The expiry of the value that a lookup finds.
#[derive(Clone, Copy, Default, Debug)]
pub struct FoundExpiry(Option<Expiry>);

impl FoundExpiry {
    /// The expiry; `None` if the value lasts, or if there is none.
    pub fn get(self) -> Option<Expiry> {
        self.0
    }
}

impl Recorder for FoundExpiry {
    fn expires(&mut self, expiry: Expiry) {
        self.0 = Some(expiry);
    }
}
