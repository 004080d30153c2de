// JudgeTemplate: the text that asks a judge for a score.
//
//   ASSIGN_OR_RETURN(const auto text, JudgeTemplate::Parse("Grade {completion} for {prompt}", key));
//   const JudgedText judged = {.prompt = "1 + 1?", .completion = "2"};
//   const std::vector<JudgePart> request = text.Fill(judged);
#ifndef TANDEM_TOOLS_TANDEM_REWARD_JUDGE_TEMPLATE_H_
#define TANDEM_TOOLS_TANDEM_REWARD_JUDGE_TEMPLATE_H_

#include <cstddef>
#include <functional>
#include <string>
#include <vector>

#include "absl/status/statusor.h"

namespace tandem::reward {

// An image of a prompt, or one that an environment showed.
struct JudgedImage {
  // Bytes [begin, end) of the text in whose place it stands, perhaps none. Those of a text are in order
  // and do not overlap.
  size_t begin = 0;
  size_t end = 0;
  // Returns it as a data URL; called once for each request. Any thread.
  std::function<absl::StatusOr<std::string>()> url;
};

// What a judge judges. The completion is text of a model in training, and the rest may be anybody's:
// none of it is to be trusted.
struct JudgedText {
  std::string prompt;
  std::string completion;
  std::string answer;  // the row's; may be empty
  std::vector<JudgedImage> prompt_images;
  std::vector<JudgedImage> completion_images;

  bool has_images() const { return !prompt_images.empty() || !completion_images.empty(); }
};

// A part of a request: a text, or an image of what is judged.
struct JudgePart {
  std::string text;
  const JudgedImage* image = nullptr;
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

  // What is inserted is not read for placeholders again. Images stand where the prompt and the completion
  // have them; without images there is one part. The parts point into `judged`.
  std::vector<JudgePart> Fill(const JudgedText& judged) const;

 private:
  enum class Part { kText, kPrompt, kCompletion, kAnswer };
  struct Piece {
    Part part = Part::kText;
    std::string text;
  };
  static std::vector<Piece> Split(const std::string& text);
  static std::vector<JudgePart> Join(const std::vector<Piece>& pieces, const JudgedText& judged);

  std::vector<Piece> pieces_;
  std::vector<Piece> without_answer_;  // used for rows without an answer; empty: `pieces_` are
  bool needs_answer_ = false;
};

}  // namespace tandem::reward

#endif  // TANDEM_TOOLS_TANDEM_REWARD_JUDGE_TEMPLATE_H_
