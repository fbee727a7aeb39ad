# Copyright 2026 The csr_policy Authors
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.

# `make demo` and `make test` do all the set-up they need; the second run skips what is done.

SHELL := /bin/bash
.SHELLFLAGS := -e -o pipefail -c
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

BAG ?=
ARGS ?=
VENV := $(CURDIR)/.venv
STAMPS := .venv/stamps
say = echo "csr_policy: $(1)"

# Where ROS 2 is sourced it is used; elsewhere it comes as wheels. There the environment of the
# servers is another one: vLLM would replace packages that ROS 2 relies on.
ifneq ($(and $(ROS_DISTRO),$(shell python3 -c 'import rclpy' 2>/dev/null && echo yes)),)
MODE := ros-$(ROS_DISTRO)
SERVING := $(CURDIR)/.venv-vllm
PYTHON ?= python3
VENV_OPTIONS := --system-site-packages
REQUIREMENTS := robot demo dev
COLCON := colcon
# The built messages' libraries are found through the sourced environment.
activate := source .venv/local_setup.bash &&
export CSR_POLICY_VLLM_PYTHON := $(SERVING)/bin/python
else
MODE := wheels
SERVING := $(VENV)
VENV_OPTIONS :=
REQUIREMENTS := robot demo dev ros-wheels serving-cpu
COLCON := env VIRTUAL_ENV=$(VENV) AMENT_PREFIX_PATH=$(VENV) PATH="$(VENV)/bin:$$PATH" \
    $(VENV)/bin/colcon
activate :=
endif

# An environment of the other mode, or one that was moved here, is refused by make_venv.sh.
ENVIRONMENT := $(MODE) $(CURDIR)
ifneq ($(shell cat $(STAMPS)/python 2>/dev/null),$(ENVIRONMENT))
.PHONY: $(STAMPS)/python
endif

.PHONY: help demo test lint format build env models clean

help:
	@echo "make demo            start two vLLM servers, the node and a robot; watch it decide"
	@echo "make demo BAG=dir    the same on the messages of a rosbag2 folder"
	@echo "make test            lint, type check and test"
	@echo "make lint            ruff and mypy alone"
	@echo "make format          let ruff put the source in its format"
	@echo "make build           install the package with its messages into .venv"
	@echo "make env             create .venv with the pinned requirements"
	@echo "make models          make the demo's and the tests' model folders"
	@echo "make clean           remove what was built; .venv and models/ go with 'git clean -dfX'"
	@echo "ARGS='...' goes to csr-policy demo or to pytest"

demo: build models
	@$(activate) .venv/bin/csr-policy demo $(if $(BAG),--bag "$(BAG)") $(ARGS)

test: lint build models
	@$(call say,running the tests)
	@$(activate) .venv/bin/python -m pytest $(ARGS)

lint: env
	@$(call say,checking style and types)
	@.venv/bin/ruff check .
	@.venv/bin/ruff format --check .
	@.venv/bin/mypy

format: env
	@.venv/bin/ruff check --fix .
	@.venv/bin/ruff format .

# colcon looks itself for what changed, a second and a half when nothing did.
build: env
	@for tool in cmake g++; do command -v $$tool >/dev/null || { echo "csr_policy: $$tool is" \
	    "missing: install cmake and g++, on Debian and Ubuntu: apt-get install cmake g++" >&2; \
	    exit 1; }; done
	@$(call say,building the messages and installing the modules into .venv)
	@$(COLCON) build --merge-install --install-base .venv --paths . \
	    --event-handlers console_direct- --cmake-args -DBUILD_TESTING=OFF \
	    -DPython3_EXECUTABLE=$(VENV)/bin/python -DCSR_POLICY_PYTHON=$(VENV)/bin/python

models: build $(STAMPS)/serving
	@$(SERVING)/bin/python -m csr_policy.serving.models --out models

env: $(STAMPS)/packages $(STAMPS)/serving

$(STAMPS)/python:
	@tools/make_venv.sh "$(ENVIRONMENT)" .venv "$(PYTHON)" $(VENV_OPTIONS)

$(STAMPS)/packages: $(STAMPS)/python requirements/*.txt tools/pip_install.sh
	@$(call say,installing the pinned requirements (about 3 minutes the first time))
	@tools/pip_install.sh .venv/bin/python $(REQUIREMENTS:%=-r requirements/%.txt)
ifeq ($(MODE),wheels)
	@.venv/bin/python tools/repair_wheels.py
	@touch -a .venv/local_setup.sh  # colcon asks for one in every prefix, and writes its own
endif
	@touch $@

$(STAMPS)/serving: $(STAMPS)/packages
ifneq ($(MODE),wheels)
	@$(call say,installing vLLM into .venv-vllm (about 3 minutes the first time))
	@$(PYTHON) -m venv .venv-vllm
	@env -u PYTHONPATH tools/pip_install.sh .venv-vllm/bin/python \
	    -r requirements/bootstrap.txt -r requirements/serving-cpu.txt -r requirements/robot.txt
endif
	@tools/pip_install.sh $(SERVING)/bin/python --no-deps -r requirements/serving-cpu-no-deps.txt
	@$(call say,removing torchvision torchaudio torchcodec: they break transformers here)
	@$(SERVING)/bin/python -m pip uninstall --quiet --yes torchvision torchaudio torchcodec
	@touch $@

clean:
	rm -rf build install log demo_output bench_output .pytest_cache .mypy_cache .ruff_cache \
	    .hypothesis
