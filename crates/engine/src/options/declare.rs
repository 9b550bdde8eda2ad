//! The macro that turns the table of options into code.
//!
//! A row of the table is
//!
//! ```text
//! /// First paragraph: a line of `--help` and of the reference page. The rest: the method's page.
//! "name" => method(argument: Given) field NAME: Type = default; { fields of `OptionInfo` }
//! ```
//!
//! where `Given` converts into `Type`. `live PATH` instead of `field NAME` keeps the value in
//! [`LiveSettings`](crate::options::settings::LiveSettings). `[hidden]` before the method hides it
//! from the documentation. From the rows are made: the fields of `Settings` and their defaults, the
//! methods of `Builder` (rows under `main`) and of `Experimental` (the others), and the static
//! table `OPTIONS`.

/// The place of an option's value.
macro_rules! stored {
    ($settings:expr, field $field:ident) => { $settings.$field };
    ($settings:expr, live $($place:ident).+) => { $settings.live.get().$($place).+ };
}

/// Stores an option's value.
macro_rules! store {
    ($settings:expr, $value:expr, field $field:ident) => { $settings.$field = $value };
    ($settings:expr, $value:expr, live $($place:ident).+) => {
        $settings.live.change(|live| live.$($place).+ = $value)
    };
}

/// Whether the value can change while the database is open.
macro_rules! is_live {
    (field $($place:tt)+) => {
        false
    };
    (live $($place:tt)+) => {
        true
    };
}

/// One element of the static table.
macro_rules! row {
    (
        $name:literal, $method:ident, $type:ty, is_experimental: $experimental:literal,
        [$($place:tt)+], [$($doc:literal)+], { $($spec:tt)* }
    ) => {
        OptionInfo {
            $($spec)*
            name: $name,
            method: stringify!($method),
            is_experimental: $experimental,
            is_live: is_live!($($place)+),
            doc: concat!($($doc, "\n"),+),
            print: |settings| <$type as OptionValue>::print(&stored!(settings, $($place)+)),
            parse: |text| {
                let value = <$type as OptionValue>::parse(text)?;
                Some(Box::new(move |settings: &mut Settings| {
                    store!(settings, Clone::clone(&value), $($place)+);
                }))
            },
            ..OptionInfo::BLANK
        }
    };
}

/// Declares the options: see the header of this file.
macro_rules! declare_options {
    (
        main { $(
            $(#[doc = $m_doc:literal])+
            $m_name:literal => $([$m_hidden:ident])? $m_method:ident($m_arg:ident: $m_given:ty)
            $(field $m_field:ident)? $(live $($m_live:ident).+)?: $m_type:ty = $m_default:expr;
            { $($m_spec:tt)* }
        )+ }
        experimental { $(
            $(#[doc = $e_doc:literal])+
            $e_name:literal => $e_method:ident($e_arg:ident: $e_given:ty)
            $(field $e_field:ident)? $(live $($e_live:ident).+)?: $e_type:ty = $e_default:expr;
            { $($e_spec:tt)* }
        )+ }
    ) => {
        /// The values of all options of an open database; [`OPTIONS`] describes the fields.
        #[derive(Clone, Debug, PartialEq)]
        pub(crate) struct Settings {
            /// Values that can change while the database is open: the design and the plan of its
            /// filters.
            pub live: Live,
            /// Sizes from which values are stored outside the data blocks of tables. Not an option:
            /// differs from the default only in tests.
            pub large_values: LargeValues,
            $( $( pub $m_field: $m_type, )? )+
            $( $( pub $e_field: $e_type, )? )+
        }

        impl Default for Settings {
            fn default() -> Self {
                let mut live = LiveSettings::default();
                $( $( live.$($m_live).+ = $m_default; )? )+
                $( $( live.$($e_live).+ = $e_default; )? )+
                Self {
                    live: Live::new(live),
                    large_values: LargeValues::default(),
                    $( $( $m_field: $m_default, )? )+
                    $( $( $e_field: $e_default, )? )+
                }
            }
        }

        impl Builder { $(
            $(#[doc = $m_doc])+
            $(#[doc($m_hidden)])?
            #[must_use]
            pub fn $m_method(self, $m_arg: $m_given) -> Self {
                let value: $m_type = $m_arg.into();
                self.give($m_name, move |settings| {
                    store!(settings, Clone::clone(&value), $(field $m_field)? $(live $($m_live).+)?);
                })
            }
        )+ }

        impl Experimental { $(
            $(#[doc = $e_doc])+
            pub fn $e_method(&mut self, $e_arg: $e_given) -> &mut Self {
                let value: $e_type = $e_arg.into();
                self.give($e_name, move |settings| {
                    store!(settings, Clone::clone(&value), $(field $e_field)? $(live $($e_live).+)?);
                })
            }
        )+ }

        /// Every option: the main ones, then those of [`Experimental`].
        pub(super) static OPTIONS: &[OptionInfo] = &[
            $( row!(
                $m_name, $m_method, $m_type, is_experimental: false,
                [$(field $m_field)? $(live $($m_live).+)?], [$($m_doc)+], { $($m_spec)* }
            ), )+
            $( row!(
                $e_name, $e_method, $e_type, is_experimental: true,
                [$(field $e_field)? $(live $($e_live).+)?], [$($e_doc)+], { $($e_spec)* }
            ), )+
        ];
    };
}

pub(super) use {declare_options, is_live, row, store, stored};
