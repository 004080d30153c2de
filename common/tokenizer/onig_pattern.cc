#include "common/tokenizer/onig_pattern.h"

#include <cctype>
#include <vector>

#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/code_point_set.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer {
namespace {

constexpr int kMaxNesting = 100;
// Each costs a pass over Unicode.
constexpr int kMaxComputedSets = 64;

class Translator {
 public:
  explicit Translator(absl::string_view pattern) : pattern_(pattern) {}

  absl::StatusOr<std::string> Translate() {
    while (pos_ < pattern_.size()) RETURN_IF_ERROR(Item());
    return std::move(out_);
  }

 private:
  // One escape that stands for a class of characters.
  struct ClassEscape {
    std::string body;
    bool negated = false;
  };

  char Peek(size_t ahead = 0) const {
    return pos_ + ahead < pattern_.size() ? pattern_[pos_ + ahead] : '\0';
  }

  absl::Status Unsupported(absl::string_view what) const {
    return absl::UnimplementedError(
        absl::StrCat("pattern '", pattern_, "', offset ", pos_, ": ", what, " is not supported"));
  }

  absl::Status Item() {
    const char c = Peek();
    if (c == '\\') return Escape();
    if (c == '[') {
      atom_ = out_.size();
      return Set();
    }
    if (c == '(') return Group();
    if (c == ')') {
      ++pos_;
      out_.push_back(')');
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      return absl::OkStatus();
    }
    if (c == '{') return Interval();
    if (c != '*' && c != '+' && c != '?') atom_ = out_.size();
    size_t length;
    DecodeAt(pattern_, pos_, &length);
    out_.append(pattern_.data() + pos_, length);
    pos_ += length;
    return absl::OkStatus();
  }

  // "{n,m}"; "{,m}" starts at 0. A '+' behind it repeats the whole, where PCRE2 would take it for a
  // possessive quantifier.
  absl::Status Interval() {
    size_t i = pos_ + 1;
    std::string low, high;
    while (i < pattern_.size() && isdigit(static_cast<unsigned char>(pattern_[i])))
      low += pattern_[i++];
    const bool comma = i < pattern_.size() && pattern_[i] == ',';
    if (comma) ++i;
    while (comma && i < pattern_.size() && isdigit(static_cast<unsigned char>(pattern_[i])))
      high += pattern_[i++];
    if (i >= pattern_.size() || pattern_[i] != '}' || (low.empty() && high.empty())) {
      atom_ = out_.size();
      out_.append("\\{");  // a literal brace
      ++pos_;
      return absl::OkStatus();
    }
    pos_ = i + 1;
    const std::string interval =
        absl::StrCat("{", low.empty() ? "0" : low, comma ? "," : "", high, "}");
    if (Peek() == '+') {
      out_ = absl::StrCat(out_.substr(0, atom_), "(?:", out_.substr(atom_), interval, ")");
    } else {
      out_.append(interval);
    }
    return absl::OkStatus();
  }

  absl::Status Group() {
    if (static_cast<int>(groups_.size()) >= kMaxNesting) return Unsupported("nesting this deep");
    groups_.push_back(out_.size());
    if (Peek(1) != '?') {
      out_.push_back('(');
      ++pos_;
      return absl::OkStatus();
    }
    if (Peek(2) == '~') return Unsupported("the absence operator (?~");
    if (Peek(2) == '#') {
      const size_t end = pattern_.find(')', pos_);
      if (end == absl::string_view::npos) return Unsupported("a comment without its end");
      pos_ = end + 1;
      groups_.pop_back();
      return absl::OkStatus();
    }
    size_t i = pos_ + 2;
    std::string flags;
    while (i < pattern_.size() &&
           (isalpha(static_cast<unsigned char>(pattern_[i])) || pattern_[i] == '-')) {
      const char flag = pattern_[i];
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-') break;
      flags.push_back(flag == 'm' ? 's' : flag);
      ++i;
    }
    if (!flags.empty() && i < pattern_.size() && (pattern_[i] == ':' || pattern_[i] == ')')) {
      absl::StrAppend(&out_, "(?", flags);
      pos_ = i;  // the ':' or ')' comes next
      if (pattern_[i] == ':') {
        out_.push_back(':');
        ++pos_;
      }
      return absl::OkStatus();
    }
    out_.append("(?");
    pos_ += 2;
    // Copies what opens the group: names and look-arounds are the same in both.
    while (pos_ < pattern_.size() && absl::StrContains(":=!<>", Peek())) {
      out_.push_back(Peek());
      ++pos_;
      if (out_.back() != '<') break;
    }
    return absl::OkStatus();
  }

  // At a '\': true when the escape names a class, which is then consumed.
  absl::StatusOr<bool> TakeClassEscape(bool in_set, ClassEscape* escape) {
    const char c = Peek(1);
    std::string name;
    size_t length = 2;
    if (c == 'p' || c == 'P') {
      if (Peek(2) != '{') return Unsupported("a property without braces");
      const size_t end = pattern_.find('}', pos_);
      if (end == absl::string_view::npos) return Unsupported("a property without its end");
      name = std::string(pattern_.substr(pos_ + 3, end - pos_ - 3));
      escape->negated = c == 'P';
      if (!name.empty() && name[0] == '^') {
        escape->negated = !escape->negated;
        name.erase(0, 1);
      }
      length = end + 1 - pos_;
      // One letter in braces is a category, never one of the short forms.
      if (name == "s" || name == "S") name = "symbol";
      if (name == "w" || name == "h" || name == "d") name.insert(0, "?");
    } else if ((c != 0 && absl::StrContains("wWdDsShH", c))) {
      name = std::string(1, static_cast<char>(tolower(c)));
      escape->negated = isupper(static_cast<unsigned char>(c)) != 0;
    } else {
      return false;
    }
    std::optional<std::string> body = PropertyClassBody(name, in_set);
    if (!body.has_value()) return Unsupported(absl::StrCat("the property '", name, "'"));
    escape->body = *std::move(body);
    pos_ += length;
    return true;
  }

  // An escape for a single character, written for PCRE2.
  std::string CharacterEscape() {
    const char c = Peek(1);
    if (c == 'v') {
      pos_ += 2;
      return "\\x{b}";
    }
    if (c == 'u' && pos_ + 6 <= pattern_.size()) {
      const std::string digits(pattern_.substr(pos_ + 2, 4));
      pos_ += 6;
      return absl::StrCat("\\x{", digits, "}");
    }
    size_t length = 1;
    if (pos_ + 1 < pattern_.size()) DecodeAt(pattern_, pos_ + 1, &length);
    std::string out(pattern_.substr(pos_, 1 + length));
    pos_ += 1 + length;
    return out;
  }

  absl::Status Escape() {
    atom_ = out_.size();
    ClassEscape escape;
    ASSIGN_OR_RETURN(const bool is_class, TakeClassEscape(/*in_set=*/false, &escape));
    if (is_class) {
      absl::StrAppend(&out_, escape.negated ? "[^" : "[", escape.body, "]");
      return absl::OkStatus();
    }
    if (Peek(1) == 'b' || Peek(1) == 'B') {
      const std::string word = absl::StrCat("[", *PropertyClassBody("w", /*in_set=*/false), "]");
      if (Peek(1) == 'b') {
        absl::StrAppend(&out_, "(?:(?<=", word, ")(?!", word, ")|(?<!", word, ")(?=", word, "))");
      } else {
        absl::StrAppend(&out_, "(?:(?<=", word, ")(?=", word, ")|(?<!", word, ")(?!", word, "))");
      }
      pos_ += 2;
      return absl::OkStatus();
    }
    if (Peek(1) == 'Q' || Peek(1) == 'E') return Unsupported("quoting by \\Q and \\E");
    out_.append(CharacterEscape());
    return absl::OkStatus();
  }

  absl::StatusOr<CodePointSet> Computed(const std::string& body) {
    if (++computed_ > kMaxComputedSets) return Unsupported("so many set operations");
    std::optional<CodePointSet> set = EvaluateClassBody(body);
    if (!set.has_value()) return Unsupported(absl::StrCat("the set [", body, "]"));
    return *std::move(set);
  }

  // A partly read set: what PCRE2 can express itself, and what had to be computed.
  struct SetParts {
    bool negated = false;
    bool computed = false;
    std::string body;
    CodePointSet set;
  };

  absl::Status Set() {
    ASSIGN_OR_RETURN(SetParts parts, ReadSet(0));
    if (!parts.computed) {
      absl::StrAppend(&out_, parts.negated ? "[^" : "[", parts.body, "]");
      return absl::OkStatus();
    }
    ASSIGN_OR_RETURN(CodePointSet set, Resolve(parts));
    out_.append(set.empty() ? "(?!)" : absl::StrCat("[", set.ToClassBody(), "]"));
    return absl::OkStatus();
  }

  absl::StatusOr<CodePointSet> Resolve(const SetParts& parts) {
    ASSIGN_OR_RETURN(CodePointSet set, Computed(parts.body));
    set.Add(parts.set);
    return parts.negated ? set.Complement() : set;
  }

  // A '-' beside a class is literal.
  bool ClassFollows(size_t ahead) const {
    const char c = Peek(ahead);
    if (c == '[') return true;
    return c == '\\' && absl::StrContains("pPwWdDsShH", Peek(ahead + 1));
  }

  absl::StatusOr<SetParts> ReadSet(int depth) {
    if (depth > kMaxNesting) return Unsupported("nesting this deep");
    SetParts parts;
    ++pos_;  // '['
    if (Peek() == '^') {
      parts.negated = true;
      ++pos_;
    }
    bool after_class = false;
    for (bool first = true;; first = false) {
      if (pos_ >= pattern_.size()) return Unsupported("a set without its end");
      const char c = Peek();
      if (c == ']' && !first) {
        ++pos_;
        return parts;
      }
      if (c == '[' && Peek(1) == ':') {
        RETURN_IF_ERROR(PosixClass(&parts));
        after_class = true;
      } else if (c == '[') {
        ASSIGN_OR_RETURN(SetParts inner, ReadSet(depth + 1));
        ASSIGN_OR_RETURN(CodePointSet set, Resolve(inner));
        parts.computed = true;
        parts.set.Add(set);
        after_class = true;
      } else if (c == '&' && Peek(1) == '&') {
        return Intersection(std::move(parts), depth);
      } else if (c == '\\') {
        ClassEscape escape;
        ASSIGN_OR_RETURN(const bool is_class, TakeClassEscape(/*in_set=*/true, &escape));
        after_class = is_class;
        if (!is_class) {
          parts.body.append(CharacterEscape());
        } else if (!escape.negated) {
          parts.body.append(escape.body);
        } else {
          ASSIGN_OR_RETURN(const CodePointSet set, Computed(escape.body));
          parts.computed = true;
          parts.set.Add(set.Complement());
        }
      } else if (c == '-') {
        parts.body.append(first || after_class || ClassFollows(1) || Peek(1) == ']' ? "\\-" : "-");
        after_class = false;
        ++pos_;
      } else {
        if (c == ']' || c == '^') parts.body.push_back('\\');
        size_t length;
        DecodeAt(pattern_, pos_, &length);
        parts.body.append(pattern_.data() + pos_, length);
        pos_ += length;
        after_class = false;
      }
    }
  }

  // At "&&": intersects what was read so far with the rest of the set.
  absl::StatusOr<SetParts> Intersection(SetParts left, int depth) {
    ++pos_;  // the first '&'; ReadSet() skips the second as if it were a '['
    SetParts out;
    out.negated = left.negated;
    out.computed = true;
    left.negated = false;
    ASSIGN_OR_RETURN(CodePointSet set, Resolve(left));
    ASSIGN_OR_RETURN(SetParts right, ReadSet(depth + 1));
    ASSIGN_OR_RETURN(CodePointSet rest, Resolve(right));
    out.set = set.Intersect(rest);
    return out;
  }

  // "[:alpha:]" inside a set.
  absl::Status PosixClass(SetParts* parts) {
    const size_t end = pattern_.find(":]", pos_);
    if (end == absl::string_view::npos) return Unsupported("a POSIX class without its end");
    absl::string_view name = pattern_.substr(pos_ + 2, end - pos_ - 2);
    const bool negated = !name.empty() && name[0] == '^';
    if (negated) name.remove_prefix(1);
    std::optional<std::string> body;
    for (absl::string_view known : {"alpha", "alnum", "digit", "space", "word", "upper", "lower",
                                    "punct", "cntrl", "xdigit", "ascii"}) {
      if (name == known) body = PropertyClassBody(name, /*in_set=*/true);
    }
    if (name == "punct")
      absl::StrAppend(&*body, *PropertyClassBody("symbol", true));  // as \p{Punct} is not
    if (!body.has_value()) return Unsupported(absl::StrCat("the class [:", name, ":]"));
    if (negated) {
      ASSIGN_OR_RETURN(const CodePointSet set, Computed(*body));
      parts->computed = true;
      parts->set.Add(set.Complement());
    } else {
      parts->body.append(*body);
    }
    pos_ = end + 2;
    return absl::OkStatus();
  }

  const absl::string_view pattern_;
  size_t pos_ = 0;
  std::string out_;
  size_t atom_ = 0;             // where the last atom starts in out_
  std::vector<size_t> groups_;  // where the open groups start in out_
  int computed_ = 0;
};

}  // namespace

absl::StatusOr<std::string> TranslateOnigPattern(absl::string_view pattern) {
  return Translator(pattern).Translate();
}

}  // namespace tandem::tokenizer
