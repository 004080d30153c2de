// StreamParser: takes a model's answer apart into content, reasoning and calls, as its text comes.
//
//   StreamParser parser(Hermes(), {.schemas = schemas});
//   for (const Delta& delta : parser.Push("<tool_call>{\"name\": \"now\", ")) Send(delta);
//   for (const Delta& delta : parser.Push("\"arguments\": {}}</tool_call>")) Send(delta);
//   for (const Delta& delta : parser.Finish()) Send(delta);
//   const Answer answer = ParseAnswer(Hermes(), text);
//
// Wherever the text is cut, the deltas add up to the same answer. So that a malformed call is content
// for streams too, a call comes once it is complete, as its name and then its arguments.
#ifndef TANDEM_COMMON_TOOL_CALLS_STREAM_PARSER_H_
#define TANDEM_COMMON_TOOL_CALLS_STREAM_PARSER_H_

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "absl/strings/string_view.h"
#include "common/tool_calls/format.h"
#include "common/tool_calls/tool_call.h"

namespace tandem::tool_calls {

struct Delta {
  enum class Kind { kContent, kReasoning, kCall, kArguments };
  Kind kind = Kind::kContent;
  std::string text;  // new content, reasoning or arguments
  int index = 0;     // of the call
  std::string id;    // kCall only
  std::string name;  // kCall only

  bool operator==(const Delta&) const = default;
};

// Bytes [begin, end) of a text.
struct TextRange {
  size_t begin = 0;
  size_t end = 0;
};

struct ParserOptions {
  Schemas schemas;
  // What follows is content, with a problem; the rest of a list that begins before is left out.
  int max_calls = kMaxCalls;
  // For calls that bring no id; null: NewCallId().
  std::function<std::string()> new_id;
};

// Reads one answer; single-threaded. `format` must outlive it. White space beside a call is neither
// content nor reasoning.
class StreamParser {
 public:
  StreamParser(const Format& format, ParserOptions options = {});
  ~StreamParser();

  // Adds text. `hidden` lists, in order, the bytes of it that are seen as marks and never shown as
  // content: special tokens.
  std::vector<Delta> Push(absl::string_view text, const std::vector<TextRange>& hidden = {});
  // Call once, after the last text.
  std::vector<Delta> Finish();

  int num_calls() const { return num_calls_; }
  const std::vector<Problem>& problems() const { return problems_; }

 private:
  void Scan(bool ended, std::vector<Delta>& out);
  void Take(Delta::Kind kind, size_t size, std::vector<Delta>& out);
  void TakeCalls(std::vector<ToolCall> calls, size_t size, std::vector<Delta>& out);
  void AddProblem(std::string what, size_t offset);
  // The shown part of the next `size` bytes, which are consumed.
  std::string Consume(size_t size);

  const Format& format_;
  const ParserOptions options_;
  const std::unique_ptr<Scanner> scanner_;
  std::string text_;  // consumed up to begin_
  size_t begin_ = 0;
  int64_t base_ = 0;  // offset in the answer of text_'s first byte
  struct Hidden {
    int64_t begin;
    int64_t end;
  };
  std::vector<Hidden> hidden_;  // of what is not consumed, in order
  std::string space_;           // content that ends so far, and is dropped before a call
  bool after_call_ = false;     // nothing but white space since a call
  bool gave_up_ = false;        // the rest is content
  int num_calls_ = 0;
  std::vector<Problem> problems_;
};

struct Answer {
  std::string content;
  std::string reasoning;
  std::vector<ToolCall> calls;
  std::vector<Problem> problems;

  bool operator==(const Answer&) const = default;
};

// The same for a complete answer.
Answer ParseAnswer(const Format& format, absl::string_view text,
                   const std::vector<TextRange>& hidden = {}, ParserOptions options = {});

// Adds deltas to what they are parts of.
void AddDeltas(const std::vector<Delta>& deltas, Answer& answer);

}  // namespace tandem::tool_calls

#endif  // TANDEM_COMMON_TOOL_CALLS_STREAM_PARSER_H_
