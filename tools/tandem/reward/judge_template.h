// JudgeTemplate: the text that asks a judge for a score.
//
//   ASSIGN_OR_RETURN(const auto text, JudgeTemplate::Parse("Grade {completion} for {prompt}", key));
//   const std::string request = text.Fill({.prompt = "1 + 1?", .completion = "2"});
#ifndef TANDEM_TOOLS_TANDEM_REWARD_JUDGE_TEMPLATE_H_
#define TANDEM_TOOLS_TANDEM_REWARD_JUDGE_TEMPLATE_H_

#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::reward {

// What a judge judges. The completion is text of a model in training, and the rest may be anybody's:
// none of it is to be trusted.
struct JudgedText {
  std::string prompt;
  std::string completion;
  std::string answer;  // the row's; may be empty
};

// Immutable.
class JudgeTemplate {
 public:
  // Replaces {prompt}, {completion} and {answer}, wherever they stand; other braces are text. Empty:
  // the default, which asks for a score from 0 to 10 and shows the answer where there is one.
  // `key` names the template's origin in errors. INVALID_ARGUMENT for one without {completion}.
  static absl::StatusOr<JudgeTemplate> Parse(const std::string& text, const std::string& key);

  // Whether the template asks for the row's answer: rows without one are then a mistake.
  bool needs_answer() const { return needs_answer_; }

  // What is inserted is not read for placeholders again.
  std::string Fill(const JudgedText& judged) const;

 private:
  enum class Part { kText, kPrompt, kCompletion, kAnswer };
  struct Piece {
    Part part = Part::kText;
    std::string text;
  };
  static std::vector<Piece> Split(const std::string& text);
  static std::string Join(const std::vector<Piece>& pieces, const JudgedText& judged);

  std::vector<Piece> pieces_;
  std::vector<Piece> without_answer_;  // used for rows without an answer; empty: `pieces_` are
  bool needs_answer_ = false;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_JUDGE_TEMPLATE_H_
