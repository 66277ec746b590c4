// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sextant-node/sextant/pkg/kubeletconfig"
)

// configCommand holds what is said of the kubelet's configuration.
func configCommand() *cobra.Command {
	c := &cobra.Command{Use: "config", Short: "What Sextant does with the kubelet's configuration"}
	c.AddCommand(explainCommand())
	return c
}

func explainCommand() *cobra.Command {
	var o output
	c := &cobra.Command{
		Use:   "explain [FIELD | --FLAG | GATE]...",
		Short: "Tell what is done with a field, a flag or a feature gate: honoured, partly, warned about or refused",
		Long: `Tell what Sextant does with a field of KubeletConfiguration, a flag of the kubelet
or a feature gate: "honoured" is as in a kubelet, "partly" and "warned" are accepted
with a warning when changed, "refused" keeps the node from starting. The path of a
part stands for all fields below it. Without arguments: every field.`,
		Example: `  sextant config explain evictionHard
  sextant config explain authentication -o yaml
  sextant config explain -- --node-ip
  sextant config explain`,
		ValidArgsFunction: func(*cobra.Command, []string, string) ([]string, cobra.ShellCompDirective) {
			var names []string
			for _, s := range settings() {
				names = append(names, s.Name)
			}
			return names, cobra.ShellCompDirectiveNoFileComp
		},
		RunE: func(c *cobra.Command, args []string) error {
			rows, err := explainSettings(args)
			if err != nil {
				return err
			}
			var cells [][]string
			for _, s := range rows {
				cells = append(cells, []string{s.Name, string(s.Level), orDash(strings.Join(s.Values, ", ")), orDash(s.Default), s.Reason})
			}
			return o.print(c.OutOrStdout(), rows, []string{"SETTING", "SUPPORT", "HONOURED VALUES", "DEFAULT", "INSTEAD"}, cells)
		},
	}
	o.register(c)
	return c
}

// settings are every field, flag and gate that touches a node.
func settings() []kubeletconfig.Support {
	return slices.Concat(kubeletconfig.FieldSupport(), kubeletconfig.FlagSupport(), kubeletconfig.GateSupport())
}

// explainSettings finds the support of what is named; of every field without names.
func explainSettings(names []string) ([]kubeletconfig.Support, error) {
	if len(names) == 0 {
		return kubeletconfig.FieldSupport(), nil
	}
	var found []kubeletconfig.Support
	for _, name := range names {
		before := len(found)
		for _, s := range settings() {
			if s.Name == name || strings.HasPrefix(s.Name, name+".") {
				found = append(found, s)
			}
		}
		if len(found) == before {
			return nil, usageError(fmt.Errorf("%q is no field, flag or feature gate of a kubelet v1.36%s", name, similar(name)))
		}
	}
	return found, nil
}

// similar names settings that contain the word, or are it but for its case and dashes.
func similar(word string) string {
	plain := strings.NewReplacer("-", "", ".", "")
	word = strings.ToLower(plain.Replace(word))
	var names []string
	for _, s := range settings() {
		if word != "" && strings.Contains(strings.ToLower(plain.Replace(s.Name)), word) {
			names = append(names, s.Name)
		}
	}
	if len(names) == 0 {
		return ""
	}
	return ": there are " + strings.Join(names[:min(len(names), 5)], ", ")
}
