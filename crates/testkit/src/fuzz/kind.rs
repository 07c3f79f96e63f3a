//! Names of all oddities of a case.

macro_rules! kinds {
    ($($kind:ident)*) => {
        /// An oddity of a case.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        pub enum Kind {
            $($kind,)*
        }

        impl Kind {
            pub const ALL: &[Kind] = &[$(Kind::$kind),*];
        }
    };
}

kinds! {
    // Hosts of registries.
    HostHub HostIpv4 HostIpv6 HostLocal HostOdd HostPlain HostPort HostUpperCase HostWithoutDot
    // Keys of `auths`.
    KeyAlmostApiPath KeyApiPath KeyApiPathBefore KeyBackslash KeyBadIpv6 KeyBadPercent KeyBadPort KeyBrackets
    KeyControl KeyDigest KeyDot KeyEdited KeyEmpty KeyFragment KeyGlobLabel KeyGlobPart KeyGlobPath KeyGlobWhole
    KeyHttp KeyHttps KeyHubUrl KeyInvalidUtf8 KeyIpv6 KeyLeadingSlash KeyLong KeyNamespace KeyNotAscii KeyOtherScheme
    KeyPartOfName KeyPercent KeyPercentInstead KeyPort KeyPortGlob KeyQuery KeyQuestionMark KeyRepository KeyRespelled
    KeySign KeySlashes KeySpace KeySurrogate KeyTag KeyTrailingSlash KeyTwice KeyTwoOddities KeyUpperCase KeyUser
    // What `auth` encodes.
    PairByteOrderMark PairColons PairNeither PairNoPassword PairNoUser PairNotUtf8 PairNul PairSpace PairUtf16
    // Its base64.
    AuthCutOff AuthDirtyBits AuthEmpty AuthInvalidUtf8 AuthLineBreak AuthLineBreakAtEnd AuthLonger AuthNoColon
    AuthOtherCharacter AuthPaddingInside AuthPaddingMissing AuthPaddingMore AuthPaddingOnly AuthPaddingSplit AuthPlain
    AuthSpace AuthSurrogate AuthTwice AuthUnicodeSpace AuthUnpadded AuthUrlAlphabet AuthWhiteOnly AuthWrapped
    // Other texts of an entry.
    TextColon TextControl TextEmpty TextInvalidUtf8 TextNotAscii TextSurrogate TextToken
    // Entries.
    EntryAll EntryBadThenGood EntryDeep EntryEmail EntryEmpty EntryFieldNull EntryFieldOtherType EntryFieldTwice
    EntryFieldsNull EntryText
    EntryIdentityToken EntryIdentityTokenOnly EntryNotObject EntryNull EntryPasswordOnly EntryRegistryToken
    EntryUnknown EntryUserAndPassword EntryUserOnly
    // Names of members.
    FieldAlmost FieldCase FieldFolded
    // How JSON is written.
    JsonEscapes JsonSpace
    // `HttpHeaders`.
    HeadersOtherType HeadersSound
    // `credHelpers`.
    HelpersEmpty HelpersNull HelpersOfHost HelpersOfPath HelpersOtherType HelpersTwice
    // The file as a whole.
    FileAuthsEmpty FileAuthsNull FileAuthsOtherType FileAuthsText FileAuthsThenNull FileAuthsThenOtherType FileAuthsTwice
    FileBadEscape FileBadLiteral FileBadNumber FileByteChanged FileByteGone FileByteMore FileByteOrderMark FileComment
    FileCutOff FileDeep FileEmpty FileLarge FileMoreBehind FileNestedWhole FileNoAuths FileNotObject FileOddNumber
    FileOddSpaceAround FileOldForm FileOtherMembers FileOtherQuotes FileRawControl FileSpaceAround FileTrailingComma
    FileEncoded FileManifest FileNulls FileUnfinished FileUtf16 FileUtf16Unmarked
    // Names of images.
    ImageBadDigest ImageBadTag ImageBesideKey ImageDigest ImageDot ImageEdited ImageEmpty ImageHostOdd ImageHostOnly
    ImageHub ImageIdentifier ImageIpv6 ImageLong ImageLongTag ImageNotAscii ImageOfKey ImagePort ImageScheme
    ImageSeparator ImageShort ImageSign ImageSlashes ImageSpace ImageTag ImageTagAndDigest ImageUpperCase
    ImageUpperCaseFirst
}

/// Formats `KeyGlobLabel` as `key glob label`.
impl std::fmt::Display for Kind {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let mut words = String::new();
        for character in format!("{self:?}").chars() {
            if character.is_ascii_uppercase() && !words.is_empty() {
                words.push(' ');
            }
            words.push(character.to_ascii_lowercase());
        }
        f.pad(&words)
    }
}
