// A judge as the source of a run's rewards.
#include <set>
#include <utility>

#include "absl/strings/str_cat.h"
#include "common/images/image_source.h"
#include "common/status/status_macros.h"
#include "tools/tandem/driver/prompt_text.h"
#include "tools/tandem/driver/reward_source.h"
#include "tools/tandem/reward/judge.h"

namespace tandem::driver {
namespace {

absl::StatusOr<std::string> UrlOf(const PromptImage& image) {
  ASSIGN_OR_RETURN(const std::string file, ReadImageFile(image));
  return images::DataUrlOf(file, "an image");
}

// `image` outlives the judgement.
reward::JudgedImage Show(const PromptImage& image, const TextPlace& place) {
  return {.begin = static_cast<size_t>(place.begin),
          .end = static_cast<size_t>(place.end),
          .url = [&image] { return UrlOf(image); }};
}

// The images that an environment or an agent showed, in the order of the text. Those whose places are
// not known, an agent's, stand before the text, unless the prompt has shown them.
std::vector<reward::JudgedImage> ImagesOf(const Prompt& prompt, const Completion& completion) {
  std::set<std::string> shown;
  for (const PromptImage& image : prompt.images) shown.insert(image.digest);
  std::vector<reward::JudgedImage> out;
  for (const EpisodeSegment& segment : completion.segments) {
    for (size_t i = 0; i < segment.images.size(); ++i) {
      const PromptImage& image = segment.images[i];
      const bool has_place = i < segment.image_places.size();
      if (has_place ? segment.image_places[i].begin < 0 : !shown.insert(image.digest).second)
        continue;
      out.push_back(Show(image, has_place ? segment.image_places[i] : TextPlace()));
    }
  }
  return out;
}

class JudgeReward : public RewardSource {
 public:
  explicit JudgeReward(reward::JudgeOptions options)
      : images_(options.images), images_key_(options.images_key), judge_(std::move(options)) {}

  absl::Status Check(absl::Duration timeout, const std::function<bool()>& interrupted) override {
    return judge_.Check(timeout, interrupted);
  }

  absl::StatusOr<std::vector<Score>> Judge(const std::vector<Judged>& completions) override {
    std::vector<reward::JudgedText> texts;
    for (const auto& [prompt, completion] : completions) {
      PicturedText read = PromptTextAndImages(*prompt);
      reward::JudgedText& text =
          texts.emplace_back(reward::JudgedText{.prompt = std::move(read.text),
                                                .completion = completion->text,
                                                .answer = prompt->answer});
      if (text.prompt.empty() && !prompt->token_ids.empty() && read.images.empty()) {
        return absl::InvalidArgumentError(
            absl::StrCat(RowName(*prompt),
                         ": expected a prompt of text or messages, which a judge reads; found "
                         "token ids"));
      }
      for (size_t i = 0; i < prompt->images.size(); ++i) {
        text.prompt_images.push_back(Show(prompt->images[i], read.images[i]));
      }
      text.completion_images = ImagesOf(*prompt, *completion);
      if (images_ || !text.has_images()) continue;
      return absl::FailedPreconditionError(absl::StrCat(
          RowName(*prompt),
          ": it has pictures, of its own or from the environment, which its judge does "
          "not see; set ",
          images_key_, "=true for a judge that sees pictures"));
    }
    std::vector<Score> out;
    for (const absl::StatusOr<double>& reward : judge_.Score(texts)) {
      if (absl::IsCancelled(reward.status())) return reward.status();
      Score& score = out.emplace_back();
      if (reward.ok()) {
        score.reward = *reward;
      } else {
        score.failure = reward.status();
      }
    }
    return out;
  }

 private:
  const bool images_;
  const std::string images_key_;
  reward::Judge judge_;
};

}  // namespace

std::unique_ptr<RewardSource> MakeJudgeReward(reward::JudgeOptions options) {
  return std::make_unique<JudgeReward>(std::move(options));
}

}  // namespace tandem::driver
