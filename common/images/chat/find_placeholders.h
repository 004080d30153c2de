// The tokens that stand for an image, by the tokenizer of a model.
//
//   ASSIGN_OR_RETURN(const PlaceholderIds ids,
//                    FindPlaceholderIds(image_token_id, preparer.placeholders(), tokenizer.get()));
#ifndef TANDEM_COMMON_IMAGES_CHAT_FIND_PLACEHOLDERS_H_
#define TANDEM_COMMON_IMAGES_CHAT_FIND_PLACEHOLDERS_H_

#include <cstdint>

#include "absl/status/statusor.h"
#include "common/images/chat/placeholders.h"
#include "common/tokenizer/tokenizer.h"

namespace tandem::images {

// FindPlaceholderIds() with what the tokenizer says; null: it has no token.
absl::StatusOr<PlaceholderIds> FindPlaceholderIds(int32_t placeholder, PlaceholderTexts texts,
                                                  const tokenizer::Tokenizer* tokenizer);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_CHAT_FIND_PLACEHOLDERS_H_
