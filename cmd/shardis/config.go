package main

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"

	"github.com/go-viper/mapstructure/v2"
	"github.com/spf13/cobra"
	"github.com/spf13/viper"
)

// Every role has one typed configuration struct with defaults. Values come, in
// rising order, from the defaults, the YAML file of --config, environment
// variables (SHARDIS_ETCD_ENDPOINTS for etcd.endpoints) and flags. A key the
// struct does not have is an error.
//
// viper alone does not do that: it lower-cases keys, sees only environment
// variables of keys it knows, and ignores unknown keys. So all keys are
// registered from the struct first, and decoding is exact.

// roleConfig is what a role's configuration can do.
type roleConfig interface {
	Validate() error
	WriteDefault(w io.Writer) error
}

// roleFlags are the flags every role has.
type roleFlags struct {
	file        string
	set         []string
	print       bool
	check       bool
	logLevel    string
	logFormat   string
	bound       map[string]string // flag → key
	description string
}

// addRoleFlags adds the common flags; bound maps further flags, which the
// caller has defined on cmd, to configuration keys.
func addRoleFlags(cmd *cobra.Command, bound map[string]string) *roleFlags {
	f := &roleFlags{bound: bound}
	flags := cmd.Flags()
	flags.StringVarP(&f.file, "config", "c", "", "YAML file to read")
	flags.StringArrayVar(&f.set, "set", nil, "set one key, e.g. --set etcd.endpoints=10.0.0.1:2379 (repeatable)")
	flags.BoolVar(&f.print, "print-config", false, "print the commented default configuration and exit")
	flags.BoolVar(&f.check, "check-config", false, "check the configuration and exit")
	flags.StringVar(&f.logLevel, "log-level", "info", "debug, info, warn or error")
	flags.StringVar(&f.logFormat, "log-format", "text", "text or json")
	return f
}

var errDone = errors.New("done")

// load fills cfg, which holds the defaults, and validates it. errDone means
// that --print-config or --check-config was served and nothing is to be run.
func (f *roleFlags) load(cmd *cobra.Command, cfg roleConfig) error {
	if f.print {
		if err := cfg.WriteDefault(cmd.OutOrStdout()); err != nil {
			return err
		}
		return errDone
	}
	if err := readConfig(cmd, f, cfg); err != nil {
		return exitError{exitUsage, err}
	}
	if err := cfg.Validate(); err != nil {
		return exitError{exitUsage, fmt.Errorf("configuration: %w", err)}
	}
	if f.check {
		if _, err := fmt.Fprintln(cmd.OutOrStdout(), "configuration is valid"); err != nil {
			return err
		}
		return errDone
	}
	return nil
}

func readConfig(cmd *cobra.Command, f *roleFlags, cfg any) error {
	v := viper.New()
	defaults := map[string]any{}
	flatten("", reflect.ValueOf(cfg).Elem(), defaults)
	for key, value := range defaults {
		v.SetDefault(key, value)
	}
	v.SetEnvPrefix("SHARDIS")
	v.SetEnvKeyReplacer(strings.NewReplacer(".", "_"))
	v.AutomaticEnv()
	if f.file != "" {
		v.SetConfigFile(f.file)
		if filepath.Ext(f.file) == "" {
			v.SetConfigType("yaml")
		}
		if err := v.ReadInConfig(); err != nil {
			return fmt.Errorf("read configuration: %w", err)
		}
	}
	for flag, key := range f.bound {
		if cmd.Flags().Changed(flag) {
			v.Set(key, cmd.Flags().Lookup(flag).Value.String())
		}
	}
	for _, pair := range f.set {
		key, value, found := strings.Cut(pair, "=")
		if !found {
			return fmt.Errorf("--set %s: want key=value", pair)
		}
		v.Set(strings.TrimSpace(key), value)
	}
	if unknown := unknownKeys(v.AllKeys(), defaults); len(unknown) > 0 {
		return fmt.Errorf("unknown configuration key %s: see %s --print-config", strings.Join(unknown, ", "), cmd.CommandPath())
	}
	hook := mapstructure.ComposeDecodeHookFunc(
		mapstructure.StringToTimeDurationHookFunc(),
		mapstructure.StringToSliceHookFunc(","),
		mapstructure.TextUnmarshallerHookFunc())
	if err := v.UnmarshalExact(cfg, viper.DecodeHook(hook)); err != nil {
		return fmt.Errorf("configuration: %w", err)
	}
	return nil
}

// unknownKeys lists keys that no field of the configuration has.
func unknownKeys(keys []string, known map[string]any) []string {
	var unknown []string
	for _, key := range keys {
		if _, ok := known[key]; !ok {
			unknown = append(unknown, key)
		}
	}
	slices.Sort(unknown)
	return unknown
}

// flatten registers each leaf of a configuration struct under its dotted key.
func flatten(prefix string, v reflect.Value, into map[string]any) {
	for i := range v.NumField() {
		field := v.Type().Field(i)
		name, options, _ := strings.Cut(field.Tag.Get("mapstructure"), ",")
		if !field.IsExported() || name == "-" {
			continue
		}
		key := prefix
		if !strings.Contains(options, "squash") {
			if name == "" {
				name = strings.ToLower(field.Name)
			}
			key = prefix + name
		}
		if value := v.Field(i); value.Kind() == reflect.Struct {
			if key != "" && !strings.Contains(options, "squash") {
				key += "."
			}
			flatten(key, value, into)
		} else {
			into[strings.ToLower(key)] = value.Interface()
		}
	}
}

// logger writes to stderr in the chosen form.
func (f *roleFlags) logger(part string) (*slog.Logger, error) {
	var level slog.Level
	if err := level.UnmarshalText([]byte(f.logLevel)); err != nil {
		return nil, exitError{exitUsage, fmt.Errorf("--log-level %s: want debug, info, warn or error", f.logLevel)}
	}
	options := &slog.HandlerOptions{Level: level}
	switch f.logFormat {
	case "json":
		return slog.New(slog.NewJSONHandler(os.Stderr, options)).With("part", part), nil
	case "text":
		return slog.New(slog.NewTextHandler(os.Stderr, options)).With("part", part), nil
	}
	return nil, exitError{exitUsage, fmt.Errorf("--log-format %s: want text or json", f.logFormat)}
}
