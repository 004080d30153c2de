// Fetches several things a few at a time: most of the time of one is its server's.
//
//   http::WorkerPool pool(images::kMostFetches - 1);
//   images::FetchTogether(urls.size(), pool, [&](size_t i) {
//     files[i] = fetcher.Fetch(urls[i]);
//     return files[i].ok();
//   });
#ifndef TANDEM_COMMON_IMAGES_FETCH_FETCH_TOGETHER_H_
#define TANDEM_COMMON_IMAGES_FETCH_FETCH_TOGETHER_H_

#include <cstddef>

#include "absl/functional/function_ref.h"
#include "common/http/worker_pool.h"

namespace tandem::images {

// Fetches of one caller at a time; a response has at most 15 MiB.
inline constexpr size_t kMostFetches = 8;

// Calls fetch(0) to fetch(count - 1), which begin in this order, up to kMostFetches at a time: in the
// calling thread, and in those of `pool` that are free meanwhile. After a call that returns false none is
// begun. Returns when all that have begun have ended: whether none returned false. An exception of one
// ends the calls as well, and is thrown again here.
bool FetchTogether(size_t count, http::WorkerPool& pool, absl::FunctionRef<bool(size_t i)> fetch);

}  // namespace tandem::images

#endif  // TANDEM_COMMON_IMAGES_FETCH_FETCH_TOGETHER_H_
