#include "common/tokenizer/jinja/lexer.h"

#include <algorithm>

#include "absl/strings/ascii.h"
#include "absl/strings/match.h"
#include "absl/strings/str_cat.h"
#include "absl/strings/str_replace.h"
#include "common/status/status_macros.h"
#include "common/tokenizer/jinja/text.h"
#include "common/tokenizer/unicode.h"

namespace tandem::tokenizer::jinja::internal {
namespace {

using Kind = Token::Kind;

int HexValue(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  c = absl::ascii_tolower(c);
  return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

// A string literal's text with Python's escapes resolved; unknown ones stay as they are.
std::string Unescape(absl::string_view raw) {
  std::string out;
  for (size_t i = 0; i < raw.size(); ++i) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      out.push_back(raw[i]);
      continue;
    }
    const char c = raw[++i];
    switch (c) {
      case '\n':
        break;
      case '\\':
      case '\'':
      case '"':
        out.push_back(c);
        break;
      case 'a':
        out.push_back('\a');
        break;
      case 'b':
        out.push_back('\b');
        break;
      case 'f':
        out.push_back('\f');
        break;
      case 'n':
        out.push_back('\n');
        break;
      case 'r':
        out.push_back('\r');
        break;
      case 't':
        out.push_back('\t');
        break;
      case 'v':
        out.push_back('\v');
        break;
      case 'x':
      case 'u':
      case 'U': {
        const size_t digits = c == 'x' ? 2 : c == 'u' ? 4 : 8;
        char32_t code = 0;
        size_t k = 0;
        while (k < digits && i + 1 + k < raw.size() && HexValue(raw[i + 1 + k]) >= 0) {
          code = code * 16 + static_cast<char32_t>(HexValue(raw[i + 1 + k]));
          ++k;
        }
        if (k < digits || code > 0x10FFFF) {
          out.push_back('\\');
          out.push_back(c);
          break;
        }
        // A surrogate is no character.
        AppendUtf8(code >= 0xD800 && code <= 0xDFFF ? 0xFFFD : code, &out);
        i += digits;
        break;
      }
      default:
        if (c >= '0' && c <= '7') {
          char32_t code = 0;
          size_t k = 0;
          while (k < 3 && i + k < raw.size() && raw[i + k] >= '0' && raw[i + k] <= '7') {
            code = code * 8 + static_cast<char32_t>(raw[i + k] - '0');
            ++k;
          }
          AppendUtf8(code, &out);
          i += k - 1;
        } else {
          out.push_back('\\');
          out.push_back(c);
        }
    }
  }
  return out;
}

class Lexer {
 public:
  explicit Lexer(absl::string_view source)
      : source_(absl::StrReplaceAll(source, {{"\r\n", "\n"}, {"\r", "\n"}})) {
    if (!source_.empty() && source_.back() == '\n') source_.pop_back();
  }

  absl::StatusOr<std::vector<Token>> Run() {
    while (pos_ < source_.size()) RETURN_IF_ERROR(Text());
    Emit(Kind::kEnd, "");
    return std::move(tokens_);
  }

 private:
  absl::string_view Rest() const { return absl::string_view(source_).substr(pos_); }

  void Emit(Kind kind, std::string text) { tokens_.push_back({kind, std::move(text), line_}); }

  void Advance(size_t count) {
    line_ +=
        static_cast<int>(std::count(source_.begin() + static_cast<ptrdiff_t>(pos_),
                                    source_.begin() + static_cast<ptrdiff_t>(pos_ + count), '\n'));
    pos_ += count;
  }

  // Position of the next tag, or of the end.
  size_t NextTag() const {
    for (size_t at = source_.find('{', pos_); at != std::string::npos;
         at = source_.find('{', at + 1)) {
      const char next = at + 1 < source_.size() ? source_[at + 1] : '\0';
      if (next == '{' || next == '%' || next == '#') return at;
    }
    return source_.size();
  }

  // The text before a tag, trimmed according to the tag's sign and the line.
  absl::string_view Trimmed(absl::string_view text, char sign, bool is_output) const {
    if (sign == '-') return Strip(text, Side::kRight);
    if (sign == '+' || is_output) return text;
    const size_t newline = text.rfind('\n');
    const size_t line_start = newline == absl::string_view::npos ? 0 : newline + 1;
    if ((line_start > 0 || at_line_start_) && Strip(text.substr(line_start), Side::kBoth).empty()) {
      return text.substr(0, line_start);
    }
    return text;
  }

  absl::Status Text() {
    const size_t tag = NextTag();
    absl::string_view text = absl::string_view(source_).substr(pos_, tag - pos_);
    if (tag == source_.size()) {
      Emit(Kind::kText, std::string(text));
      Advance(text.size());
      return absl::OkStatus();
    }
    const char kind = source_[tag + 1];
    const char after = tag + 2 < source_.size() ? source_[tag + 2] : '\0';
    const char sign = after == '-' || after == '+' ? after : '\0';
    const absl::string_view kept = Trimmed(text, sign, kind == '{');
    if (!kept.empty()) Emit(Kind::kText, std::string(kept));
    Advance(text.size());
    Advance(sign == '\0' ? 2 : 3);
    at_line_start_ = false;
    if (kind == '#') return Comment();
    if (kind == '%') {
      bool is_raw = false;
      RETURN_IF_ERROR(Raw(&is_raw));
      if (is_raw) return absl::OkStatus();
    }
    Emit(kind == '{' ? Kind::kOutputBegin : Kind::kStatementBegin, "");
    return Code(kind == '{');
  }

  // Consumes "-%}" with the following white space, "+%}", or "%}" with a newline.
  bool TakeEnd(absl::string_view end, bool trims_newline) {
    const absl::string_view rest = Rest();
    size_t length = 0;
    if (rest.substr(0, 1) == "-" && rest.substr(1, 2) == end) {
      length = 3;
      const absl::string_view behind = rest.substr(3);
      length += behind.size() - Strip(behind, Side::kLeft).size();
    } else if (trims_newline && rest.substr(0, 1) == "+" && rest.substr(1, 2) == end) {
      length = 3;
    } else if (rest.substr(0, 2) == end) {
      length = 2;
      if (trims_newline && rest.substr(2, 1) == "\n") length = 3;
    } else {
      return false;
    }
    at_line_start_ = rest[length - 1] == '\n';
    Advance(length);
    return true;
  }

  absl::Status Comment() {
    const int begin = line_;
    while (pos_ < source_.size()) {
      const size_t hash = source_.find("#}", pos_);
      if (hash == std::string::npos) break;
      const bool signed_end = hash > pos_ && (source_[hash - 1] == '-' || source_[hash - 1] == '+');
      Advance(hash - pos_ - (signed_end ? 1 : 0));
      TakeEnd("#}", true);
      return absl::OkStatus();
    }
    return ErrorAt(begin, "a comment is not closed: expected '#}'");
  }

  size_t SkipSpace(size_t at) const {
    const absl::string_view rest = absl::string_view(source_).substr(at);
    return source_.size() - Strip(rest, Side::kLeft).size();
  }

  // "{% raw %}...{% endraw %}": takes its text verbatim.
  absl::Status Raw(bool* is_raw) {
    const int begin = line_;
    size_t at = SkipSpace(pos_);
    if (source_.compare(at, 3, "raw") != 0) return absl::OkStatus();
    at = SkipSpace(at + 3);
    const bool minus = source_.compare(at, 3, "-%}") == 0;
    if (!minus && source_.compare(at, 2, "%}") != 0) return absl::OkStatus();
    *is_raw = true;
    at += minus ? 3 : 2;
    if (minus) at = SkipSpace(at);
    Advance(at - pos_);
    for (size_t tag = source_.find("{%", pos_); tag != std::string::npos;
         tag = source_.find("{%", tag + 2)) {
      size_t word = tag + 2;
      const char sign = word < source_.size() && (source_[word] == '-' || source_[word] == '+')
                            ? source_[word]
                            : '\0';
      word = SkipSpace(word + (sign == '\0' ? 0 : 1));
      if (source_.compare(word, 6, "endraw") != 0) continue;
      const size_t end = SkipSpace(word + 6);
      const absl::string_view text = absl::string_view(source_).substr(pos_, tag - pos_);
      const absl::string_view kept = Trimmed(text, sign, false);
      if (!kept.empty()) Emit(Kind::kText, std::string(kept));
      Advance(end - pos_);
      if (TakeEnd("%}", true)) return absl::OkStatus();
      return ErrorAt(line_, "expected '%}' after endraw");
    }
    return ErrorAt(begin, "a raw block is not closed: expected '{% endraw %}'");
  }

  absl::Status Code(bool is_output) {
    const int begin = line_;
    const absl::string_view end = is_output ? "}}" : "%}";
    std::string open;
    while (true) {
      Advance(SkipSpace(pos_) - pos_);
      if (pos_ >= source_.size()) {
        return ErrorAt(begin, absl::StrCat("a tag is not closed: expected '", end, "'"));
      }
      // Braces of a dictionary take precedence over the tag's end.
      if (open.empty() && TakeEnd(end, !is_output)) {
        Emit(is_output ? Kind::kOutputEnd : Kind::kStatementEnd, "");
        return absl::OkStatus();
      }
      RETURN_IF_ERROR(CodeToken(&open));
    }
  }

  absl::Status CodeToken(std::string* open) {
    const char c = source_[pos_];
    if (absl::ascii_isdigit(c)) return Number();
    if (c == '\'' || c == '"') return String(c);
    size_t length;
    size_t end = pos_;
    while (end < source_.size() && IsWord(DecodeAt(source_, end, &length))) end += length;
    if (end > pos_) {
      Emit(Kind::kName, source_.substr(pos_, end - pos_));
      Advance(end - pos_);
      return absl::OkStatus();
    }
    for (absl::string_view op :
         {"//", "**", "==", "!=", ">=", "<=", "+", "-", "/", "*", "%", "~", "[",
          "]",  "(",  ")",  "{",  "}",  ">",  "<", "=", ".", ":", "|", ","}) {
      if (!absl::StartsWith(Rest(), op)) continue;
      if (op == "(" || op == "[" || op == "{") {
        open->push_back(op == "(" ? ')' : op == "[" ? ']' : '}');
      } else if (op == ")" || op == "]" || op == "}") {
        if (open->empty() || open->back() != op[0]) {
          return ErrorAt(line_, absl::StrCat("unexpected '", op, "'"));
        }
        open->pop_back();
      }
      Emit(Kind::kOperator, std::string(op));
      Advance(op.size());
      return absl::OkStatus();
    }
    DecodeAt(source_, pos_, &length);
    return ErrorAt(line_,
                   absl::StrCat("unexpected character '", source_.substr(pos_, length), "'"));
  }

  absl::Status Number() {
    std::string digits;
    size_t at = pos_;
    const auto take_digits = [&] {
      while (at < source_.size() &&
             (absl::ascii_isdigit(source_[at]) || (source_[at] == '_' && at + 1 < source_.size() &&
                                                   absl::ascii_isdigit(source_[at + 1])))) {
        if (source_[at] != '_') digits.push_back(source_[at]);
        ++at;
      }
    };
    bool is_float = false;
    const char second = pos_ + 1 < source_.size() ? absl::ascii_tolower(source_[pos_ + 1]) : '\0';
    if (source_[pos_] == '0' && (second == 'x' || second == 'b' || second == 'o')) {
      at += 2;
      while (at < source_.size() && (absl::ascii_isxdigit(source_[at]) || source_[at] == '_')) {
        if (source_[at] != '_') digits.push_back(source_[at]);
        ++at;
      }
      digits = absl::StrCat("0", std::string(1, second), digits);
    } else {
      take_digits();
      if (at + 1 < source_.size() && source_[at] == '.' && absl::ascii_isdigit(source_[at + 1])) {
        is_float = true;
        digits.push_back('.');
        ++at;
        take_digits();
      }
      size_t exponent = at + 1;
      if (at < source_.size() && absl::ascii_tolower(source_[at]) == 'e') {
        if (exponent < source_.size() && (source_[exponent] == '+' || source_[exponent] == '-'))
          ++exponent;
        if (exponent < source_.size() && absl::ascii_isdigit(source_[exponent])) {
          is_float = true;
          digits.append(source_, at, exponent - at);
          at = exponent;
          take_digits();
        }
      }
    }
    Emit(is_float ? Kind::kFloat : Kind::kInteger, digits);
    Advance(at - pos_);
    return absl::OkStatus();
  }

  absl::Status String(char quote) {
    size_t at = pos_ + 1;
    while (at < source_.size() && source_[at] != quote) at += source_[at] == '\\' ? 2 : 1;
    if (at >= source_.size()) return ErrorAt(line_, "a string is not closed");
    Emit(Kind::kString, Unescape(absl::string_view(source_).substr(pos_ + 1, at - pos_ - 1)));
    Advance(at + 1 - pos_);
    return absl::OkStatus();
  }

  std::string source_;
  size_t pos_ = 0;
  int line_ = 1;
  bool at_line_start_ = true;
  std::vector<Token> tokens_;
};

}  // namespace

absl::Status ErrorAt(int line, absl::string_view message) {
  return absl::InvalidArgumentError(absl::StrCat("template line ", line, ": ", message));
}

absl::StatusOr<std::vector<Token>> Tokenize(absl::string_view source) {
  RETURN_IF_ERROR(ValidateUtf8(source)) << "in a template";
  return Lexer(source).Run();
}

}  // namespace tandem::tokenizer::jinja::internal
