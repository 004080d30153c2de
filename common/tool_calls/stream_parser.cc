#include "common/tool_calls/stream_parser.h"

#include <algorithm>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/tool_calls/call_id.h"
#include "common/tool_calls/text_scan.h"

namespace tandem::tool_calls {

StreamParser::StreamParser(const Format& format, ParserOptions options)
    : format_(format),
      options_(std::move(options)),
      scanner_(format.make_scanner(options_.schemas)) {}

StreamParser::~StreamParser() = default;

std::vector<Delta> StreamParser::Push(absl::string_view text,
                                      const std::vector<TextRange>& hidden) {
  const int64_t offset = base_ + static_cast<int64_t>(text_.size());
  for (const TextRange& range : hidden) {
    hidden_.push_back(
        {offset + static_cast<int64_t>(range.begin), offset + static_cast<int64_t>(range.end)});
  }
  absl::StrAppend(&text_, text);
  std::vector<Delta> out;
  Scan(/*ended=*/false, out);
  return out;
}

std::vector<Delta> StreamParser::Finish() {
  std::vector<Delta> out;
  Scan(/*ended=*/true, out);
  if (!after_call_ && !space_.empty()) out.push_back({.text = std::move(space_)});
  space_.clear();
  return out;
}

void StreamParser::Scan(bool ended, std::vector<Delta>& out) {
  while (begin_ < text_.size()) {
    const absl::string_view rest = absl::string_view(text_).substr(begin_);
    Found found = gave_up_ ? Found::Content(rest.size()) : scanner_->Next(rest, ended);
    switch (found.kind) {
      case Found::Kind::kNeedsMore:
        // Consumed text goes once it is the larger part, so that a byte moves seldom.
        if (begin_ > text_.size() / 2) {
          base_ += static_cast<int64_t>(begin_);
          text_.erase(0, begin_);
          begin_ = 0;
        }
        return;
      case Found::Kind::kContent:
        Take(Delta::Kind::kContent, found.size, out);
        break;
      case Found::Kind::kReasoning:
        Take(Delta::Kind::kReasoning, found.size, out);
        break;
      case Found::Kind::kMarkup:
        Consume(found.size);
        break;
      case Found::Kind::kCalls:
        TakeCalls(std::move(found.calls), found.size, out);
        break;
      case Found::Kind::kMalformed:
        AddProblem(std::move(found.problem), found.problem_offset);
        Take(Delta::Kind::kContent, found.size, out);
        break;
    }
  }
  base_ += static_cast<int64_t>(text_.size());
  text_.clear();
  begin_ = 0;
}

void StreamParser::AddProblem(std::string what, size_t offset) {
  problems_.push_back({base_ + static_cast<int64_t>(begin_ + offset), std::move(what)});
  gave_up_ = problems_.size() >= kMaxProblems;
}

std::string StreamParser::Consume(size_t size) {
  const int64_t begin = base_ + static_cast<int64_t>(begin_);
  const int64_t end = begin + static_cast<int64_t>(size);
  std::string shown;
  int64_t at = begin;
  auto hidden = hidden_.begin();
  for (; hidden != hidden_.end() && hidden->begin < end; ++hidden) {
    if (hidden->begin > at) shown.append(text_, at - base_, hidden->begin - at);
    at = std::max(at, std::min(end, hidden->end));
    if (hidden->end > end) break;  // its rest comes
  }
  hidden_.erase(hidden_.begin(), hidden);
  shown.append(text_, at - base_, end - at);
  begin_ += size;
  return shown;
}

void StreamParser::Take(Delta::Kind kind, size_t size, std::vector<Delta>& out) {
  std::string text = Consume(size);
  if (text.empty()) return;
  if (kind == Delta::Kind::kReasoning) {
    out.push_back({.kind = kind, .text = std::move(text)});
    return;
  }
  const size_t end = text.find_last_not_of(" \t\r\n") + 1;
  if (end == 0) {
    space_ += text;
    return;
  }
  text.insert(0, std::exchange(space_, text.substr(end)));
  text.resize(text.size() - space_.size());
  after_call_ = false;
  out.push_back({.text = std::move(text)});
}

void StreamParser::TakeCalls(std::vector<ToolCall> calls, size_t size, std::vector<Delta>& out) {
  const auto room = static_cast<size_t>(options_.max_calls - num_calls_);
  if (calls.size() > room) {
    AddProblem(absl::StrCat("expected at most ", options_.max_calls, " calls"), 0);
    gave_up_ = true;
    if (room == 0) return Take(Delta::Kind::kContent, size, out);
    calls.resize(room);  // of a list
  }
  Consume(size);
  space_.clear();
  after_call_ = true;
  for (ToolCall& call : calls) {
    if (call.id.empty()) call.id = options_.new_id ? options_.new_id() : NewCallId(format_);
    const int index = num_calls_++;
    out.push_back({.kind = Delta::Kind::kCall,
                   .index = index,
                   .id = std::move(call.id),
                   .name = std::move(call.name)});
    out.push_back(
        {.kind = Delta::Kind::kArguments, .text = std::move(call.arguments), .index = index});
  }
}

void AddDeltas(const std::vector<Delta>& deltas, Answer& answer) {
  for (const Delta& delta : deltas) {
    switch (delta.kind) {
      case Delta::Kind::kContent:
        answer.content += delta.text;
        break;
      case Delta::Kind::kReasoning:
        answer.reasoning += delta.text;
        break;
      case Delta::Kind::kCall:
        answer.calls.push_back({delta.id, delta.name, ""});
        break;
      case Delta::Kind::kArguments:
        answer.calls[delta.index].arguments += delta.text;
        break;
    }
  }
}

Answer ParseAnswer(const Format& format, absl::string_view text,
                   const std::vector<TextRange>& hidden, ParserOptions options) {
  StreamParser parser(format, std::move(options));
  Answer answer;
  AddDeltas(parser.Push(text, hidden), answer);
  AddDeltas(parser.Finish(), answer);
  answer.problems = parser.problems();
  return answer;
}

}  // namespace tandem::tool_calls
