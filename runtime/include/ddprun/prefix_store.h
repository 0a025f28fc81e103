// SPDX-License-Identifier: MIT
// A view of a Store in which every key starts with a prefix.
#pragma once

#include <ddprun/store.h>

#include <memory>
#include <string>

namespace ddprun {

/// Key k of the view is key "prefix/k" of `store`, as in PyTorch; views nest.
DDPRUN_API std::shared_ptr<Store> with_prefix(std::shared_ptr<Store> store, std::string prefix);

}  // namespace ddprun
